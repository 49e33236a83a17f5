//! Advisory locks between two processes, which the kernel implements.

use userbtrfs_testkit::test_env::has_program;

use crate::support::{both, shell};

/// A process locks by fcntl(2) and by flock(2), and another one tries to: the refusals, the waits
/// and the holder that is reported are those of POSIX.
const ASK: &str = r"
import errno, fcntl, os, struct

file = os.open('file', os.O_RDWR | os.O_CREAT, 0o644)


def refused(do, *arguments):
    try:
        do(*arguments)
        return False
    except OSError as error:
        assert error.errno in (errno.EAGAIN, errno.EACCES), error
        return True


def holder(start, length):
    # struct flock: type, whence, start, length, process.
    asked = struct.pack('hhqqi4x', fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    found = fcntl.fcntl(file, fcntl.F_GETLK, asked)
    kind, _, start, length, process = struct.unpack('hhqqi4x', found)
    return None if kind == fcntl.F_UNLCK else (start, length, process)


def in_another_process(work):
    process = os.fork()
    if process == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return process


def ends_well(process):
    assert os.waitpid(process, 0)[1] == 0


def finds_locks():
    own = os.open('file', os.O_RDWR)
    assert refused(fcntl.lockf, own, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
    assert refused(fcntl.lockf, own, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 9)
    fcntl.lockf(own, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)
    fcntl.lockf(own, fcntl.LOCK_SH | fcntl.LOCK_NB, 10, 100)
    assert refused(fcntl.lockf, own, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 100)
    assert holder(0, 0) == (0, 10, os.getppid()), holder(0, 0)
    assert refused(fcntl.flock, own, fcntl.LOCK_EX | fcntl.LOCK_NB)


def waits():
    own = os.open('file', os.O_RDWR)
    os.write(told, b'x')
    fcntl.lockf(own, fcntl.LOCK_EX, 10, 0)
    assert os.pread(own, 4, 0) == b'done'


fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
fcntl.lockf(file, fcntl.LOCK_SH, 10, 100)
other = os.open('file', os.O_RDWR)
fcntl.flock(other, fcntl.LOCK_EX)
ends_well(in_another_process(finds_locks))
# What it locked went with it.
assert holder(10, 10) is None

tell, told = os.pipe()
waiting = in_another_process(waits)
os.read(tell, 1)
os.pwrite(file, b'done', 0)
fcntl.lockf(file, fcntl.LOCK_UN, 10, 0)
ends_well(waiting)
";

#[test]
fn locks_of_two_processes_conflict() {
    if has_program("python3") {
        both(|root| drop(shell(root, &format!("python3 - <<'END'\n{ASK}\nEND"))));
    }
}
