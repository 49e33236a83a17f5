//! `getfattr`: shows extended attributes. Errors are reported, and the next file follows.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use regex_automata::nfa::thompson;
use regex_automata::nfa::thompson::pikevm::{Cache, PikeVM};
use regex_automata::util::syntax;
use serde_json::{Value, json};
use userbtrfs::{Inode, Quoted};

use crate::cli::args::Format;
use crate::cli::output::{JsonList, stdout, with_name};
use crate::cli::paths::{Traversal, each_inode};
use crate::cli::session::{RunVerb, Session};
use crate::cli::verbs::encoding;
use crate::cli::verbs::encoding::encode;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of getfattr")]
pub(crate) struct GetfattrArgs {
    /// Show this attribute and its value [default: all matching names]
    #[arg(short, long)]
    name: Option<OsString>,
    /// Show values too
    #[arg(short, long)]
    dump: bool,
    /// Show names that match this regular expression (-: all)
    #[arg(
        short = 'm',
        long = "match",
        value_name = "PATTERN",
        default_value = r"^user\.",
        allow_hyphen_values = true
    )]
    pattern: String,
    /// Encoding of values [default: text if printable, else base64]
    #[arg(short, long, value_enum)]
    encoding: Option<Encoding>,
    /// Print values only
    #[arg(long)]
    only_values: bool,
    /// Show everything below directories too, except symbolic links without --no-dereference
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Paths inside the image
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Do not follow symbolic links
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// How values are shown.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Encoding {
    Text,
    Hex,
    Base64,
}

type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// The names of the attributes that are shown.
enum Names<'a> {
    One(&'a [u8]),
    All,
    Matching(Box<(PikeVM, RefCell<Cache>)>),
}

impl Names<'_> {
    /// Returns the names that match a regular expression, or `-`.
    fn matching(pattern: &str) -> Result<Self> {
        if pattern == "-" {
            return Ok(Self::All);
        }
        let mut builder = PikeVM::builder();
        builder.syntax(syntax::Config::new().unicode(false).utf8(false));
        builder.thompson(thompson::Config::new().utf8(false));
        let built = builder.build(pattern).ok();
        let built = built.with_context(|| format!("invalid regular expression '{pattern}'"))?;
        let cache = built.create_cache().into();
        Ok(Self::Matching(Box::new((built, cache))))
    }

    /// Returns the attributes of an inode that have one of these names.
    fn find(&self, inode: &Inode) -> Result<Xattrs> {
        if let Self::One(name) = self {
            return Ok(vec![(name.to_vec(), inode.xattr(name)?)]);
        }
        let mut xattrs = inode.xattrs()?;
        if let Self::Matching(matching) = self {
            let (pattern, cache) = &**matching;
            xattrs.retain(|(name, _)| pattern.is_match(&mut cache.borrow_mut(), name));
        }
        xattrs.sort();
        Ok(xattrs)
    }
}

impl RunVerb for GetfattrArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        match session.global.format {
            Format::Text => {
                let mut out = stdout();
                let code = self.each(session, |path, xattrs| self.print(&mut out, path, xattrs))?;
                out.flush()?;
                Ok(code)
            }
            Format::Json => {
                let mut list = JsonList::start(stdout(), "getfattr")?;
                let code = self.each(session, |path, xattrs| {
                    let one = |(name, value): &(Vec<u8>, Vec<u8>)| {
                        with_name(json!({ "value": self.shown(value) }), "name", name)
                    };
                    let xattrs: Value = xattrs.iter().map(one).collect();
                    list.add(&with_name(json!({ "xattrs": xattrs }), "path", path))
                })?;
                list.end()?;
                Ok(code)
            }
        }
    }
}

impl GetfattrArgs {
    fn each(
        &self,
        session: &Session,
        mut show: impl FnMut(&[u8], &Xattrs) -> Result<()>,
    ) -> Result<ExitCode> {
        let follow = !self.no_dereference;
        let traversal = Traversal { recursive: self.recursive, follow };
        let paths = session.expand(&self.paths);
        let names = match &self.name {
            Some(name) => Names::One(name.as_encoded_bytes()),
            None => Names::matching(&self.pattern)?,
        };
        each_inode(&session.filesystem, &paths, traversal, |path, inode| {
            // One below a directory: a path that is a link was followed.
            if self.recursive && follow && inode.metadata()?.is_symlink() {
                return Ok(());
            }
            show(path, &names.find(inode)?)
        })
    }

    fn print(&self, out: &mut impl Write, path: &[u8], xattrs: &Xattrs) -> Result<()> {
        if self.only_values {
            xattrs.iter().try_for_each(|(_, value)| out.write_all(value))?;
            return Ok(());
        }
        if xattrs.is_empty() {
            return Ok(());
        }
        writeln!(out, "# file: {}", Quoted(path))?;
        for (name, value) in xattrs {
            let name = Quoted(name);
            if self.dump || self.name.is_some() {
                writeln!(out, "{name}={}", self.shown(value))?;
            } else {
                writeln!(out, "{name}")?;
            }
        }
        writeln!(out)?;
        Ok(())
    }

    fn shown(&self, value: &[u8]) -> String {
        match self.encoding {
            None => encode(value),
            Some(Encoding::Text) => encoding::text(value),
            Some(Encoding::Hex) => encoding::hex(value),
            Some(Encoding::Base64) => encoding::base64(value),
        }
    }
}
