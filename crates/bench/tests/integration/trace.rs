//! System calls of a program below a directory, by strace, in a form that does not depend on how
//! the program makes them.
//!
//! 1. Only the thread that works below the directory is looked at. Calls of other files are left
//!    out, as are the batches of a listing, whose number depends on a buffer.
//! 2. `statx` and `newfstatat` are both `stat`; flags that have no effect on the filesystem are
//!    left out. Descriptors are replaced by the paths that they were opened with.
//! 3. Times, permissions, lock ranges and addresses are left out.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The calls that are traced.
const CALLS: &str = "trace=openat,close,newfstatat,statx,mkdir,unlink,rename,pread64,pwrite64,\
    fsync,utimensat,statfs,fcntl";
/// The flags of an open that matter.
const FLAGS: [&str; 5] = ["O_RDWR", "O_RDONLY", "O_CREAT", "O_TRUNC", "O_DIRECTORY"];

/// Runs a program, and returns its calls below `root`, in order.
pub(crate) fn of(program: &mut Command, file: &Path, root: &Path) -> Vec<String> {
    userbtrfs_testkit::time_limit::limit_time();
    let mut strace = Command::new("strace");
    strace.args(["--follow-forks", "--seccomp-bpf", "-s", "4096", "-e", CALLS, "-o"]).arg(file);
    strace.arg(program.get_program()).args(program.get_args());
    let output = strace.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    calls(&fs::read_to_string(file).unwrap(), root.to_str().unwrap())
}

/// Returns the calls of the thread that makes the most calls below `root`.
fn calls(trace: &str, root: &str) -> Vec<String> {
    let mut threads = HashMap::<&str, Vec<String>>::new();
    let mut unfinished = HashMap::<&str, String>::new();
    for line in trace.lines() {
        let (thread, call) = line.split_once(' ').unwrap();
        let call = call.trim();
        if let Some(begin) = call.strip_suffix("<unfinished ...>") {
            unfinished.insert(thread, begin.trim_end().to_owned());
            continue;
        }
        let whole = match call.strip_prefix("<... ") {
            Some(rest) => {
                let rest = rest.split_once(" resumed>").unwrap().1;
                unfinished.remove(thread).unwrap() + rest
            }
            None => call.to_owned(),
        };
        threads.entry(thread).or_default().push(whole);
    }
    let normal = threads.into_values().map(|calls| Normal::new(root).all(&calls));
    normal.max_by_key(Vec::len).unwrap()
}

/// The state of a thread: its open files.
struct Normal<'a> {
    root: &'a str,
    open: HashMap<String, String>,
}

impl<'a> Normal<'a> {
    fn new(root: &'a str) -> Self {
        Self { root, open: HashMap::new() }
    }

    fn all(mut self, calls: &[String]) -> Vec<String> {
        calls.iter().filter_map(|call| self.one(call)).collect()
    }

    /// Returns a call in its normal form; `None` if it is not one below the root.
    fn one(&mut self, call: &str) -> Option<String> {
        let (name, rest) = call.split_once('(')?;
        let (arguments, result) = rest.rsplit_once(" = ")?;
        let failure = result.split(' ').nth(1).filter(|_| result.starts_with("-1"));
        let failure = failure.map(|it| format!(" {it}")).unwrap_or_default();
        let mut quoted = arguments.split('"').skip(1).step_by(2);
        let first = arguments.split([',', ')']).next().unwrap_or_default();
        if first.bytes().all(|byte| byte.is_ascii_digit()) {
            if name == "fcntl" && !arguments.contains("F_SETLK") {
                // A debug build of Rust's library checks descriptors that it closes.
                return None;
            }
            let path = self.open.get(first)?.clone();
            return self.of_descriptor(name, first, arguments, &path);
        }
        let path = quoted.next()?.strip_prefix(self.root)?.trim_end_matches('/').to_owned();
        let text = match name {
            "openat" => {
                let flags: Vec<_> = FLAGS.iter().filter(|it| arguments.contains(**it)).collect();
                if failure.is_empty() {
                    self.open.insert(result.trim().to_owned(), path.clone());
                }
                format!("open {path} {flags:?}")
            }
            "newfstatat" | "statx" => format!("stat {path}"),
            "rename" => format!("rename {path} {}", quoted.next()?.strip_prefix(self.root)?),
            other => format!("{other} {path}"),
        };
        Some(text + &failure)
    }

    /// Returns a call on an open file in its normal form.
    fn of_descriptor(
        &mut self,
        name: &str,
        descriptor: &str,
        arguments: &str,
        path: &str,
    ) -> Option<String> {
        Some(match name {
            "close" => {
                self.open.remove(descriptor);
                format!("close {path}")
            }
            "newfstatat" | "statx" => format!("fstat {path}"),
            // The content is between quotes, and is zeros, which have no comma.
            "pread64" | "pwrite64" => {
                let mut last = arguments.trim_end().trim_end_matches(')').rsplit(", ");
                let offset = last.next()?;
                format!("{name} {path} {} at {offset}", last.next()?)
            }
            other => format!("{other} {path}"),
        })
    }
}

#[test]
fn call_that_another_thread_interrupts_is_the_same_call() {
    let whole = "7 openat(AT_FDCWD, \"/r/a\", O_RDWR) = 3\n7 fsync(3) = 0\n7 close(3) = 0\n";
    let parts = "7 openat(AT_FDCWD, \"/r/a\", O_RDWR <unfinished ...>\n8 close(9) = 0\n\
        7 <... openat resumed>) = 3\n7 fsync(3 <unfinished ...>\n8 close(9) = 0\n\
        7 <... fsync resumed>) = 0\n7 close(3) = 0\n";
    assert_eq!(calls(whole, "/r"), ["open /a [\"O_RDWR\"]", "fsync /a", "close /a"]);
    assert_eq!(calls(parts, "/r"), calls(whole, "/r"));
}
