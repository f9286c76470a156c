"""submitit executors: Python functions as jobs of a cluster profile, or of a bare scheduler.

``executor``      submits functions          ``job``          their state, result and logs, from any process
``parameters``    what may be asked          ``environment``  what a function in a job knows of it
``task``          what runs in the job       ``requeue``      how a job that ran out of time goes on

submitit finds ``cluster="hpcjob"`` by this wheel's entry points; the distributions in ``plugins/`` add ``pbs``,
``gridengine`` and ``pjm``, each of which is a few names over these classes. How schedulers differ stays in
`hpcjob.schedulers`.
"""
