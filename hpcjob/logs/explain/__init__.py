"""Why a job ended: all its logs read once, one cause, its evidence, one fix.

``gather``       reads the files            ``evidence``   what their lines say, by kind
``judge``        one cause of all           ``blame``      which error made the others
``suspects``     where no line says so      ``oddities``   what works but not as it should
``expectations`` against profile and job    ``flight``     PyTorch's flight recorder
``verdict``      the result                 ``words``      the result as text
``cost`` ``exclusion`` ``quotes`` ``oom``   parts of the result
"""

from hpcjob.logs.explain.gather import gather, gather_stream
from hpcjob.logs.explain.words import lines_of

__all__ = ["gather", "gather_stream", "lines_of"]
