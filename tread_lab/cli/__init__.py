"""The commands of tread-lab: in modules by what people do; their options are in one."""
