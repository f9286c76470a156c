"""PyTorch's flight recorder: what each rank did last, and which call one of them did not make.

``unpickle`` plain data out of a pickle    ``dump`` one rank's file    ``find`` files of a job
``groups``   calls of each process group   ``compare`` ranks against each other
"""
