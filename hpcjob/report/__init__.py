"""Pictures of runs: what any trainer's log says, merged over restarts, drawn, exported and watched.

Data flows one way: words of the command line (`named`) -> attempts read from logs (`collect`) -> runs (`runs`), with
their spikes (`spikes`) -> terminal, PNG/SVG, one HTML page, CSV, JSON lines or TensorBoard event files.
"""
