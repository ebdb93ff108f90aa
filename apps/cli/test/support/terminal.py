"""Runs a command on a pseudo-terminal: what comes in is typed, what it shows goes out."""

import fcntl
import os
import pty
import select
import struct
import sys
import termios

pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
inputs = [terminal, 0]
while True:
    ready, _, _ = select.select(inputs, [], [])
    if terminal in ready:
        try:
            shown = os.read(terminal, 65536)
        except OSError:
            break
        if not shown:
            break
        os.write(1, shown)
    if 0 in ready:
        typed = os.read(0, 65536)
        if typed:
            os.write(terminal, typed)
        else:
            inputs.remove(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
