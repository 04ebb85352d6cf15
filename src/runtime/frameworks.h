/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of frameworks. Each row has a file of that name, which defines the struct
 * runtime_<name>. A job that names no framework runs with the first one.
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
