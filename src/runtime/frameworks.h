/*
 * The frameworks: one row here, one file of that name with `const struct runtime runtime_<name>`.
 * The first is what a job runs that names none.
 */
#ifndef TONY_RUNTIME_FRAMEWORKS_H
#define TONY_RUNTIME_FRAMEWORKS_H

#define FRAMEWORKS(X)                                                                              \
    X(tensorflow)                                                                                  \
    X(pytorch)                                                                                     \
    X(mxnet)                                                                                       \
    X(horovod)                                                                                     \
    X(jax)                                                                                         \
    X(mpi)                                                                                         \
    X(xgboost)                                                                                     \
    X(lightgbm)                                                                                    \
    X(ray)                                                                                         \
    X(dask)                                                                                        \
    X(standalone)                                                                                  \
    X(generic)

/* "|tensorflow|pytorch|..." */
#define FRAMEWORK_CHOICE(name) "|" #name
#define FRAMEWORK_CHOICES FRAMEWORKS(FRAMEWORK_CHOICE)

#endif
