from keras_lrn.demo import main

raise SystemExit(main())
