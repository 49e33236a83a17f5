//! The server side: a thread that accepts connections, and one for each connection.

use std::fmt;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{Shutdown, shutdown};
use rustix::process::geteuid;
use userbtrfs_sync::thread::{self, JoinHandle};
use userbtrfs_sync::{Arc, Class, Mutex};

use super::QUESTION_MAX;
use super::progress::{Progress, Remaining, report};
use super::send::ReplyStream;
use super::socket::{Place, directories, name};

/// The most connections at a time; more are closed unanswered.
const CONNECTIONS_MAX: usize = 64;

/// How long no connection is accepted after an accept has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// An answer to a question.
pub enum Answer {
    /// The whole answer.
    Whole(Vec<u8>),
    /// A whole answer that takes long.
    Watched {
        /// Returns the answer, or the reason for a refusal.
        make: Box<dyn FnOnce() -> Result<Vec<u8>, String> + Send>,
        /// The progress that the client gets meanwhile.
        progress: Progress,
    },
    /// An answer in parts: the function gets the stream to send them, and its result is dropped
    /// when the client disconnects, or the service ends.
    Parts(Box<dyn FnOnce(ReplyStream) -> Box<dyn Send> + Send>),
    /// The outcome of the whole mount.
    AtEnd {
        /// Begins to end the mount; [`Waiting::tell`] answers when it has ended. If this fails, its
        /// error is the answer.
        begin: Box<dyn FnOnce() -> Result<(), String> + Send>,
        /// The progress that the client gets meanwhile, and by [`Waiting::report`]. Dropped when
        /// the function returns.
        progress: Option<Progress>,
    },
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(bytes) => f.debug_tuple("Whole").field(bytes).finish(),
            Self::Watched { .. } => f.write_str("Watched"),
            Self::Parts(_) => f.write_str("Parts"),
            Self::AtEnd { .. } => f.write_str("AtEnd"),
        }
    }
}

/// The askers that are answered when the mount has ended. Dropped without that, they learn that
/// there is no answer.
#[derive(Debug, Default)]
pub struct Waiting(Vec<Asker>);

/// A client that is answered when the mount has ended.
#[derive(Debug)]
struct Asker {
    stream: UnixStream,
    /// Whether it gets the progress until then.
    wants_progress: bool,
}

/// Answers questions, or returns the reason for a refusal. Dropped when the service ends.
pub type Answerer = Box<dyn Fn(&[Vec<u8>]) -> Result<Answer, String> + Send + Sync>;

/// The service of a mount. It ends when it is dropped.
pub struct Control {
    /// Dropped first, so that no client connects while the service ends.
    place: Option<Place>,
    listener: Arc<UnixListener>,
    accepting: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

struct Shared {
    answerer: Answerer,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    over: bool,
    connections: Vec<Connection>,
}

/// A connection that is served.
struct Connection {
    stream: UnixStream,
    thread: JoinHandle<()>,
    question: Arc<Question>,
}

/// The question of a connection.
#[derive(Default)]
struct Question {
    /// Whether it is answered when the mount has ended.
    waits_for_end: AtomicBool,
    /// Whether the client gets the progress until then.
    wants_progress: AtomicBool,
}

impl Question {
    fn waits_for_end(&self) -> bool {
        self.waits_for_end.load(Ordering::SeqCst)
    }
}

impl Control {
    /// Starts to answer clients of the mount with this device number.
    pub fn listen(device: u64, answerer: Answerer) -> io::Result<Self> {
        let name = name(device);
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        let made = directories().iter().find_map(|directory| {
            let made = Place::make(directory, &name);
            made.map_err(|error| failed = told(directory, &error)).ok()
        });
        match made {
            Some(place) => Self::serve(place, answerer),
            None => Err(failed),
        }
    }

    fn serve(place: Place, answerer: Answerer) -> io::Result<Self> {
        let listener = Arc::clone(place.listener());
        let place = Some(place);
        let state = Mutex::new(Class::FuseSession, State::default());
        let shared = Arc::new(Shared { answerer, state });
        let of_thread = Arc::clone(&shared);
        let accepted = Arc::clone(&listener);
        let builder = thread::Builder::new().name("control".to_owned());
        let accepting = Some(builder.spawn(move || of_thread.accept(&accepted))?);
        Ok(Self { place, listener, accepting, shared })
    }
}

impl Control {
    /// Ends the service; returns the askers that are to be answered when the mount has ended.
    pub fn close(mut self) -> Waiting {
        self.end()
    }

    fn end(&mut self) -> Waiting {
        drop(self.place.take());
        self.shared.state.lock().over = true;
        // Wakes the thread that accepts. If this failed, joining it would wait forever.
        if shutdown(self.listener.as_fd(), Shutdown::Both).is_ok()
            && let Some(accepting) = self.accepting.take()
        {
            accepting.join().expect("who accepts does not panic");
        }
        let connections = std::mem::take(&mut self.shared.state.lock().connections);
        for connection in connections.iter().filter(|it| !it.question.waits_for_end()) {
            // It may have been closed by the other side.
            let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        }
        let mut waiting = Waiting::default();
        for Connection { stream, thread, question } in connections {
            // A question that made it panic was not answered.
            let _ = thread.join();
            if question.waits_for_end() {
                let wants_progress = question.wants_progress.load(Ordering::SeqCst);
                waiting.0.push(Asker { stream, wants_progress });
            }
        }
        waiting
    }
}

impl Waiting {
    /// Does `work`, which ends the mount, and sends its progress to the askers that want it.
    pub fn report<T>(
        &self,
        progress: &(dyn Fn() -> Remaining + Sync),
        work: impl FnOnce() -> T,
    ) -> T {
        let clients = self.0.iter().filter(|asker| asker.wants_progress);
        let clients: Vec<_> = clients.map(|asker| &asker.stream).collect();
        report(&clients, progress, work)
    }

    /// Answers that the mount has ended, well or with an error.
    pub fn tell(self, outcome: Result<(), &str>) {
        for Asker { mut stream, .. } in self.0 {
            // An asker that is gone does not want an answer.
            let _ = match outcome {
                Ok(()) => stream.write_all(b"whole 0\n"),
                Err(why) => write_error(&stream, why),
            };
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

fn told(place: &std::path::Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", place.display()))
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        loop {
            match listener.accept() {
                Ok((stream, _)) if is_own(&stream) => self.begin(stream),
                Ok(_stranger) => {}
                Err(_) if self.state.lock().over => return,
                // There may be no descriptor left, for example.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Starts a thread for a connection; closes the connection if that fails.
    fn begin(self: &Arc<Self>, stream: UnixStream) {
        let mut state = self.state.lock();
        let is_served = |it: &Connection| !it.thread.is_finished() || it.question.waits_for_end();
        state.connections.retain(is_served);
        if state.over || state.connections.len() >= CONNECTIONS_MAX {
            return;
        }
        let Ok(handle) = stream.try_clone() else { return };
        let shared = Arc::clone(self);
        let question = Arc::new(Question::default());
        let of_thread = Arc::clone(&question);
        let builder = thread::Builder::new().name("control".to_owned());
        let spawned = builder.spawn(move || {
            // A client that has disconnected does not want an answer.
            let _ = shared.converse(&stream, &of_thread);
            if !of_thread.waits_for_end() {
                // Dropping this handle would not close it: there is another one.
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        });
        if let Ok(thread) = spawned {
            state.connections.push(Connection { stream: handle, thread, question });
        }
    }

    fn converse(&self, mut stream: &UnixStream, question: &Question) -> io::Result<()> {
        let words = read_question(stream)?;
        match (self.answerer)(&words) {
            Ok(Answer::Whole(bytes)) => write_whole(stream, &bytes),
            Ok(Answer::Watched { make, progress }) => match report(&[stream], &*progress, make) {
                Ok(bytes) => write_whole(stream, &bytes),
                Err(why) => write_error(stream, &why),
            },
            Ok(Answer::Parts(begin)) => {
                stream.write_all(b"parts\n")?;
                let guard = begin(ReplyStream::new(stream.try_clone()?));
                // The client sends nothing more: this read returns when it disconnects.
                let ended = stream.read(&mut [0]);
                drop(guard);
                ended.map(drop)
            }
            Ok(Answer::AtEnd { begin, progress }) => {
                question.wants_progress.store(progress.is_some(), Ordering::SeqCst);
                // Before the mount can end, and with it the service.
                question.waits_for_end.store(true, Ordering::SeqCst);
                let begun = match progress {
                    Some(progress) => report(&[stream], &*progress, begin),
                    None => begin(),
                };
                begun.or_else(|why| {
                    question.waits_for_end.store(false, Ordering::SeqCst);
                    write_error(stream, &why)
                })
            }
            Err(why) => write_error(stream, &why),
        }
    }
}

fn write_whole(mut stream: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    writeln!(stream, "whole {}", bytes.len())?;
    stream.write_all(bytes)
}

fn write_error(mut stream: &UnixStream, why: &str) -> io::Result<()> {
    writeln!(stream, "error {}", why.replace('\n', " "))
}

/// Returns whether the client runs as this user.
fn is_own(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid == geteuid())
}

/// Reads the number of words, and the words.
fn read_question(stream: &UnixStream) -> io::Result<Vec<Vec<u8>>> {
    let mut reader = io::BufReader::new(stream.take(QUESTION_MAX));
    let mut word = || {
        let mut bytes = Vec::new();
        reader.read_until(0, &mut bytes)?;
        bytes.pop_if(|last| *last == 0).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(bytes)
    };
    let count = String::from_utf8(word()?).ok().and_then(|count| count.parse().ok());
    let count: u64 = count.ok_or(io::ErrorKind::InvalidData)?;
    (0..count).map(|_| word()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::super::send::Sent;
    use super::*;

    /// Starts a service in a directory of its own. Returns both, and the path of the socket.
    fn service(answerer: Answerer) -> (tempfile::TempDir, Control, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("own");
        let place = Place::make(&directory, "0:1").unwrap();
        let control = Control::serve(place, answerer).unwrap();
        (folder, control, directory.join("0:1"))
    }

    fn asked(path: &std::path::Path, question: &[u8]) -> UnixStream {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(5))).unwrap();
        stream.write_all(question).unwrap();
        stream
    }

    fn answer(mut stream: &UnixStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn questions_are_answered_whole_or_refused() {
        let (_folder, control, path) = service(Box::new(|words| match words {
            [] => Err("nothing\nis asked".to_owned()),
            words => Ok(Answer::Whole(words.join(&b'+'))),
        }));
        assert_eq!(answer(&asked(&path, b"2\0a\0b c\0")), "whole 5\na+b c");
        assert_eq!(answer(&asked(&path, b"0\0")), "error nothing is asked\n");
        let cut = asked(&path, b"a\0b");
        cut.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(answer(&cut), "");
        drop(control);
        assert!(UnixStream::connect(&path).is_err() && !path.exists());
    }

    #[test]
    fn watched_answer_follows_its_progress() {
        let (_folder, _control, path) = service(Box::new(|words| {
            let fails = words == [b"fail"];
            let make =
                Box::new(move || if fails { Err("full".into()) } else { Ok(b"ok".to_vec()) });
            Ok(Answer::Watched { make, progress: Box::new(|| Remaining { done: 2, left: 1 }) })
        }));
        let line = "progress 2 1\n";
        assert_eq!(answer(&asked(&path, b"1\0x\0")), format!("{line}{line}whole 2\nok"));
        assert_eq!(answer(&asked(&path, b"1\0fail\0")), format!("{line}{line}error full\n"));
    }

    #[test]
    fn asker_for_the_end_is_answered_after_the_service_has_ended() {
        let (heard, is_heard) = std::sync::mpsc::sync_channel(4);
        let (_folder, control, path) = service(Box::new(move |words| {
            let fails = words == [b"fail"];
            let heard = heard.clone();
            let begin = Box::new(move || {
                heard.send(()).unwrap();
                if fails { Err("busy".into()) } else { Ok(()) }
            });
            Ok(Answer::AtEnd { begin, progress: None })
        }));
        assert_eq!(answer(&asked(&path, b"1\0fail\0")), "error busy\n");
        let first = asked(&path, b"1\0x\0");
        let second = asked(&path, b"1\0x\0");
        (0..3).for_each(|_| is_heard.recv().unwrap());
        let waiting = control.close();
        assert!(UnixStream::connect(&path).is_err());
        waiting.tell(Ok(()));
        assert_eq!((answer(&first), answer(&second)), ("whole 0\n".into(), "whole 0\n".into()));
    }

    #[test]
    fn asker_for_the_end_gets_progress_before_and_after_the_end_of_the_service() {
        let (heard, is_heard) = std::sync::mpsc::sync_channel(2);
        let (_folder, control, path) = service(Box::new(move |words| {
            let heard = heard.clone();
            let begin = Box::new(move || heard.send(()).map_err(|error| error.to_string()));
            let progress: Progress = Box::new(|| Remaining { done: 1, left: 5 });
            let progress = (words == [b"watch"]).then_some(progress);
            Ok(Answer::AtEnd { begin, progress })
        }));
        let watching = asked(&path, b"1\0watch\0");
        let other = asked(&path, b"1\0wait\0");
        (0..2).for_each(|_| is_heard.recv().unwrap());
        let mut lines = BufReader::new(&watching).lines().map(Result::unwrap);
        assert!(lines.by_ref().take(2).all(|line| line == "progress 1 5"));
        let waiting = control.close();
        let is_done = waiting.report(&|| Remaining { done: 4, left: 2 }, || {
            (&watching).write_all(&[0]).unwrap();
            // The first one, and one that was asked for.
            lines.by_ref().take(2).all(|line| line == "progress 4 2")
        });
        assert!(is_done);
        waiting.tell(Ok(()));
        assert_eq!(lines.collect::<Vec<_>>(), ["progress 4 2", "whole 0"]);
        assert_eq!(answer(&other), "whole 0\n");
    }

    #[test]
    fn parts_are_sent_until_the_end_without_waiting_for_a_reader() {
        let (send_outlet, outlets) = std::sync::mpsc::sync_channel(4);
        let (_folder, control, path) = service(Box::new(move |_| {
            let send_outlet = send_outlet.clone();
            Ok(Answer::Parts(Box::new(move |reply_stream| {
                send_outlet.send(reply_stream).unwrap();
                Box::new(())
            })))
        }));
        let reader = asked(&path, b"1\0x\0");
        let reply_stream = outlets.recv().unwrap();
        assert_eq!(reply_stream.send(b"one\n"), Sent::Whole);
        let mut lines = BufReader::new(&reader).lines().map(Result::unwrap);
        assert_eq!(lines.by_ref().take(2).collect::<Vec<_>>(), ["parts", "one"]);
        let lost =
            (0..100_000).map(|_| reply_stream.send(&[b'x'; 100])).find(|sent| *sent != Sent::Whole);
        assert_eq!(lost, Some(Sent::Lost));
        drop(reader);
        assert_eq!(reply_stream.send(b"two\n"), Sent::Gone);
        // A client that does not read, and one that has not asked yet.
        let hanging = asked(&path, b"1\0x\0");
        let silent = asked(&path, b"x");
        let reply_stream = outlets.recv().unwrap();
        drop(control);
        assert_eq!(reply_stream.send(b"three\n"), Sent::Gone);
        assert_eq!(answer(&hanging), "parts\n");
        // The second client may not have been accepted at all.
        match (&silent).read(&mut [0]) {
            Ok(0) => {}
            other => assert_eq!(other.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}
