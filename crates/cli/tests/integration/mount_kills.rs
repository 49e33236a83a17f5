//! The server of a mount is killed while programs run.
//!
//! 1. It is killed in the middle of a program: at a random moment of a random phase, or at the end
//!    of the phase if that is sooner. If the program had finished by then, it is run again.
//! 2. Files that were fsynced are there: by our replay, and by that of Linux. The program defines
//!    which of its own files that are.
//! 3. Both replays show the same, except for times that a replay sets, and `btrfs check` finds no
//!    errors.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use userbtrfs::{Filesystem, OpenOptions, PendingLog};
use userbtrfs_testkit::linux::{self, Access, Linux, LoopDevice, btrfs_check};
use userbtrfs_testkit::manifest::Time;
use userbtrfs_testkit::programs::{End, Program};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::stories::differences_of_replays;
use userbtrfs_testkit::test_env::{has_program, is_torture, skip, until};
use userbtrfs_testkit::{walk_linux, walk_ours};

use super::support::site::Site;
use super::support::synced;

/// How long other files are fsynced before the server is killed. If the phase has not lasted this
/// long, that starts in the phase before it.
const BESIDES: Duration = Duration::from_millis(300);

/// The assumed length of a phase whose length is not known.
const USUAL: Duration = Duration::from_secs(1);

/// The maximum number of runs of a program until one is killed.
const TRIES: u32 = 20;

/// The interval at which the state of a program is polled.
const MOMENT: Duration = Duration::from_millis(2);

/// The directory in which a program works, and that in which other files are fsynced.
const PLACES: [&str; 2] = ["work", "synced"];

#[test]
fn git() {
    kills("git", true);
}

#[test]
fn tar_and_rsync() {
    kills("archive", false);
}

#[test]
fn sqlite() {
    kills("sqlite", true);
}

#[test]
fn dbench() {
    kills("dbench", false);
}

#[test]
fn fio() {
    kills("fio", false);
}

#[test]
fn fs_mark() {
    kills("fs_mark", false);
}

#[test]
fn sixteen_processes() {
    kills("processes", true);
}

#[test]
fn postgres() {
    kills("postgres", false);
}

#[test]
fn cargo() {
    kills("cargo", false);
}

/// A mounted block device whose server is killed, or which is shut down, while only the writers of
/// other files run.
#[test]
fn a_block_device() {
    let Some(site) = Site::new() else { return };
    if !has_program("perl") {
        return;
    }
    let linux = Linux::lock().unwrap();
    for end in ["killed", "shut_down"] {
        let device = LoopDevice::attach(&linux, &site.image(), Access::ReadWrite).unwrap();
        let mut server = site.serve_device(device.path(), &["-o", "commit=3600"]);
        assert!(site.line().unwrap().contains(" fuseblk.userbtrfs "));
        let folder = site.point().join(end);
        fs::create_dir(&folder).unwrap();
        File::open(site.point()).unwrap().sync_all().unwrap();
        let synced = synced::write_until(&folder, || {
            until("files that are synced", || synced::has_begun(&folder));
            thread::sleep(BESIDES);
            match end {
                "killed" => server.kill().unwrap(),
                _ => drop(linux::run(&mut linux::shutdown(&site.point(), 2)).unwrap()),
            }
        });
        assert!(synced > 0);
        site.umount();
        server.wait().unwrap();
        drop(device);
        let left = OpenOptions::new().pending_log(PendingLog::Leave).open(site.image()).unwrap();
        assert!(left.superblock().log_root.is_some(), "{end}");
        drop(left);
        synced::check_image(&linux, &site, end, synced);
    }
    // Opening it for writing replays the log on disk.
    site.judge();
}

/// Kills the server in the middle of a program: once, or twenty times in a torture run.
fn kills(name: &str, is_always: bool) {
    if !is_always && !is_torture() {
        return println!("SKIPPED: {name} is killed where every count is done in full");
    }
    let Some(site) = Site::new() else { return };
    // A database server runs as another user, which needs access.
    fs::set_permissions(site.made.at(""), fs::Permissions::from_mode(0o755)).unwrap();
    let seed = match std::env::var("USERBTRFS_SEED") {
        Ok(asked) => asked.parse().unwrap(),
        Err(_) => SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into(),
    };
    println!("USERBTRFS_SEED={seed}");
    let mut killer = Killer::new(site, Program::named(name), seed);
    if is_torture() && !killer.learn() {
        return;
    }
    for _ in 0..if is_torture() { 20 } else { 1 } {
        let Some(synced) = killer.kill() else { return };
        judge(&killer, synced);
    }
}

/// Runs a program and kills the server in the middle of it.
struct Killer {
    site: Site,
    program: Program,
    random: Random,
    /// How long each of its phases took, if that is known.
    lengths: Vec<Option<Duration>>,
    /// The number of runs so far.
    runs: u32,
}

/// A program that runs in a mount.
struct Running {
    child: Child,
    outside: PathBuf,
    /// When each of its phases began.
    begun: Vec<Instant>,
    /// True if the server was killed in the middle of it.
    is_killed: bool,
}

impl Killer {
    fn new(site: Site, program: Program, seed: u64) -> Self {
        let lengths = vec![None; program.phases().len()];
        Self { site, program, random: Random::new(seed), lengths, runs: 0 }
    }

    /// Returns the directory outside of the mount for the latest run.
    fn outside(&self) -> PathBuf {
        self.site.made.at(&format!("outside{}", self.runs))
    }

    /// Runs the program to its end, to time its phases; returns false if it cannot run here.
    fn learn(&mut self) -> bool {
        let mut server = self.prepare();
        let mut running = self.start();
        while !running.is_over() {
            thread::sleep(MOMENT);
        }
        let is_there = self.ended(running);
        self.site.umount();
        server.wait().unwrap();
        println!("{}: {:?} take {:?}", self.program.name, self.program.phases(), self.lengths);
        is_there
    }

    /// Kills the server in the middle of it; returns the number of other files that each writer has
    /// fsynced, or `None` if the program cannot run here.
    fn kill(&mut self) -> Option<u64> {
        for _ in 0..TRIES {
            let (running, synced) = self.run_and_kill();
            if running.is_killed {
                assert!(synced > 0);
                return Some(synced);
            }
            if !self.ended(running) {
                return None;
            }
        }
        panic!("{}: it was always over before the server was killed", self.program.name);
    }

    /// Kills the server at a random moment of a run, which may be over by then.
    fn run_and_kill(&mut self) -> (Running, u64) {
        let phase = self.random.index(self.lengths.len());
        let length = self.lengths[phase].unwrap_or(USUAL);
        let micros = 1 + u64::try_from(length.as_micros()).unwrap();
        let delay = Duration::from_micros(self.random.below(micros));
        let mut server = self.prepare();
        let mut running = self.start();
        let mut synced = 0;
        let (first, soon) = match delay.checked_sub(BESIDES) {
            Some(soon) => (phase, soon),
            None => (phase.saturating_sub(1), Duration::ZERO),
        };
        if running.comes_to(first, soon) {
            let folder = self.site.point().join(PLACES[1]);
            synced = synced::write_until(&folder, || {
                until("files that are synced", || synced::has_begun(&folder));
                running.is_killed = running.comes_to(phase, delay);
                server.kill().unwrap();
            });
        }
        server.kill().unwrap();
        server.wait().unwrap();
        // The program may have finished without another access to a file.
        running.is_killed &= !running.child.wait().unwrap().success();
        Command::new("umount").arg("-l").arg(self.site.point()).status().unwrap();
        until("the end", || !self.site.is_mounted());
        let phases = self.program.phases();
        let now = running.begun.len().checked_sub(1).map(|phase| phases[phase]);
        let end = if running.is_killed { "killed" } else { "over" };
        println!("{}: {delay:?} of {:?}, {end} in {now:?}", self.program.name, phases[phase]);
        (running, synced)
    }

    /// Makes a filesystem, mounts it, and makes the directories in it.
    fn prepare(&mut self) -> Child {
        self.runs += 1;
        fs::create_dir(self.outside()).unwrap();
        self.site.made.format(if is_torture() { "16G" } else { "2G" });
        let server = self.site.serve(&["-o", "allow_other"]);
        for place in PLACES {
            fs::create_dir(self.site.point().join(place)).unwrap();
        }
        File::open(self.site.point()).unwrap().sync_all().unwrap();
        server
    }

    fn start(&self) -> Running {
        let work = self.site.point().join(PLACES[0]);
        let outside = self.outside();
        let mut command = self.program.command(&work, &outside, is_torture());
        let said = |name| File::create(outside.join(name)).unwrap();
        command.stdout(said("stdout")).stderr(said("stderr")).process_group(0);
        Running { child: command.spawn().unwrap(), outside, begun: Vec::new(), is_killed: false }
    }

    /// Records the lengths of the phases of a program that has ended by itself; returns false if it
    /// cannot run here.
    fn ended(&mut self, mut running: Running) -> bool {
        let status = running.child.wait().unwrap();
        let said = |name| fs::read(running.outside.join(name)).unwrap();
        let output = Output { status, stdout: said("stdout"), stderr: said("stderr") };
        if let End::Skipped(reason) = self.program.end(&output).unwrap() {
            skip(&reason);
            return false;
        }
        let ends = running.begun.iter().skip(1).copied().chain([Instant::now()]);
        let lengths = running.begun.iter().zip(ends).map(|(begin, end)| Some(end - *begin));
        self.lengths = lengths.collect();
        true
    }
}

impl Running {
    /// Returns true if it has ended.
    fn is_over(&mut self) -> bool {
        let is_over = self.child.try_wait().unwrap().is_some();
        self.begun.resize_with(Program::begun(&self.outside).unwrap(), Instant::now);
        is_over
    }

    /// Waits until a phase has lasted for `delay`, or has ended; returns false if the program has
    /// ended.
    fn comes_to(&mut self, phase: usize, delay: Duration) -> bool {
        while !self.is_over() {
            let has_passed = self.begun.get(phase).is_some_and(|begin| begin.elapsed() >= delay);
            if has_passed || self.begun.len() > phase + 1 {
                return true;
            }
            thread::sleep(MOMENT);
        }
        false
    }
}

/// Checks the image after a replay by Linux, on a copy, and by us, some time after the kill. Linux
/// sets the times of a file that loses a name in the replay to the time of the replay.
fn judge(killer: &Killer, synced: u64) {
    let site = &killer.site;
    let outside = killer.outside();
    let cut = Time::now();
    let look_after = |root: &Path, who: &str| {
        synced::check(&root.join(PLACES[1]), synced, who);
        let work = root.join(PLACES[0]);
        let said = killer.program.look_after(&work, &outside, is_torture());
        println!("{who}: {}", said.map_err(|error| format!("{who}: {error:#}")).unwrap());
    };
    let linux = Linux::lock().unwrap();
    let copy = site.made.at("copy");
    let look = |root: &Path| {
        let shown = walk_linux::walk(root).unwrap();
        look_after(root, "Linux");
        shown
    };
    let theirs = linux.with_copy(&site.image(), &copy, look).unwrap();
    fs::remove_file(copy).unwrap();
    drop(linux);

    // Opening it for writing replays the log.
    OpenOptions::new().write(true).open(site.image()).unwrap().close().unwrap();
    btrfs_check(&site.image()).unwrap();
    let ours = walk_ours::walk(&Filesystem::open(site.image()).unwrap()).unwrap();
    let differences = differences_of_replays(&ours, &theirs, cut);
    assert!(differences.is_empty(), "ours, and Linux's: {differences:#?}");
    let all = site.made.at("all");
    // `-q`, since not every host filesystem takes attributes as long as btrfs does.
    site.made.does("get -q", &["/", all.to_str().unwrap()]);
    look_after(&all, "ours");
    fs::remove_dir_all(all).unwrap();
}
