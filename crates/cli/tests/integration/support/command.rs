//! The command, run as a user runs it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use userbtrfs_image_builder::ImageEditor;
use userbtrfs_testkit::time_limit::limit_time;

/// The result of a run of the command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let stderr = String::from_utf8(output.stderr).expect("messages are UTF-8");
        Self { code: output.status.code(), stdout: output.stdout, stderr }
    }
}

impl Ran {
    /// Asserts that it succeeded with nothing on stderr, and returns its stdout.
    #[track_caller]
    pub(crate) fn good(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        String::from_utf8(self.stdout).expect("what was asked for is text")
    }

    /// Asserts that it failed and that each line of stderr is a message, and returns them.
    #[track_caller]
    pub(crate) fn bad(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert!(!self.stderr.is_empty(), "{self:?}");
        for line in self.stderr.lines() {
            assert!(line.starts_with("userbtrfs: "), "{line:?}");
        }
        self.stderr
    }
}

/// Returns the command with these arguments, ready to be run.
pub(crate) fn command<I: IntoIterator<Item: AsRef<OsStr>>>(arguments: I) -> Command {
    limit_time();
    let mut command = Command::new(env!("CARGO_BIN_EXE_userbtrfs"));
    command.args(arguments).env("TZ", "UTC0").stdin(Stdio::null());
    command
}

/// Runs the command with these arguments.
pub(crate) fn run<I: IntoIterator<Item: AsRef<OsStr>>>(arguments: I) -> Ran {
    command(arguments).output().expect("the command runs").into()
}

/// Runs a verb with its options on an image.
pub(crate) fn verb(words: &str, image: &Path, rest: &[&str]) -> Ran {
    let words = words.split(' ').map(OsStr::new);
    run(words.chain([image.as_os_str()]).chain(rest.iter().map(OsStr::new)))
}

/// A folder with an image in it, and room for copies.
pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    /// Writes the image of an editor to a file.
    pub(crate) fn new(editor: &ImageEditor) -> Self {
        let bench = Self { folder: tempfile::tempdir().expect("there is room") };
        let image = editor.image().expect("it is in memory");
        std::fs::write(bench.image(), image).expect("there is room");
        bench
    }

    /// Returns the path of the image.
    pub(crate) fn image(&self) -> PathBuf {
        self.at("image")
    }

    /// Returns a path in the folder.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a verb with its options on the image.
    pub(crate) fn verb(&self, words: &str, rest: &[&str]) -> Ran {
        verb(words, &self.image(), rest)
    }

    /// Copies everything out of the image to a new directory, without messages on attributes that
    /// cannot be kept without privilege.
    pub(crate) fn get_all(&self, to: &str) -> Ran {
        self.verb("get -q", &["/", self.at(to).to_str().expect("the name is ours")])
    }
}
