"""Jobs that run every night by a timer: installed once, run without anybody there, told of in the morning."""
