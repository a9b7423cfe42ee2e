# cmake -DFILE=PROGRAM -P: takes the run path out of a program.
file(RPATH_REMOVE FILE "${FILE}")
