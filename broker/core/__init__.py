"""What a broker decides, without sockets, files, clocks or tasks: state in, decisions out."""
