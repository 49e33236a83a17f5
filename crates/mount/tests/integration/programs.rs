//! Programs as people use them.

use std::fs;
use std::path::Path;

use crate::support::{Site, both, has_program, shell};

/// A repository with a history.
const HISTORY: &str = "git init -q origin; cd origin; \
    git config user.email a@b; git config user.name a; \
    for n in $(seq 60); do mkdir -p d$((n % 7)); echo $n >d$((n % 7))/f$n; \
    seq $n $((n * 40)) >changes; git add -A; git commit -q -m $n; done";

#[test]
fn git_clones_checks_and_packs() {
    if !has_program("git") {
        return;
    }
    both(|root| {
        shell(root, HISTORY);
        shell(root, "git clone -q --no-local origin clone; cd clone; git fsck --full --strict");
        shell(root, "cd clone; git checkout -q HEAD~30; git checkout -q -; git gc -q; git fsck");
        assert_eq!(
            shell(root, "cd clone; git status --porcelain; git log --oneline | wc -l"),
            "60\n"
        );
        shell(root, "diff -r --exclude=.git origin clone; rm -rf origin");
    });
}

#[test]
fn tar_and_rsync_bring_all_out_and_in() {
    if !has_program("tar") {
        return;
    }
    both(|root| {
        shell(root, "mkdir tree; cd tree; echo x >a; ln a b; ln -s a c; mkfifo p; mkdir -m 1777 d");
        shell(
            root,
            "cd tree; setfattr -n user.x -v y a; truncate -s 1M h; echo end >>h; cp h d/h2",
        );
        shell(root, "cd tree; chmod 4711 a; chown 7:8 c -h; touch -d '1969-12-31 23:00 UTC' d");
        shell(
            root,
            "tar --xattrs --sparse -cf out.tar tree; mkdir in; tar --xattrs -xf out.tar -C in",
        );
        shell(root, "diff -r --no-dereference --exclude=p tree in/tree");
        let list = "find . -printf '%p %y %m %n %s %U %G %T@ %l\\n' | sort; getfattr -dR . | sort";
        let [there, here] = ["tree", "in/tree"].map(|dir| shell(&root.join(dir), list));
        assert_eq!(there, here);
        if has_program("rsync") {
            shell(root, "rsync -aHX --delete tree/ copy/");
            assert_eq!(shell(root, "rsync -aHXi --delete tree/ copy/"), "");
        }
    });
}

#[test]
fn sqlite_keeps_its_promises() {
    if !has_program("sqlite3") {
        return;
    }
    both(|root| {
        for mode in ["wal", "delete"] {
            let database = root.join(format!("{mode}.db"));
            let script = inserts(mode);
            fs::write(root.join("script"), script).unwrap();
            shell(root, &format!("sqlite3 {mode}.db <script >said"));
            assert_eq!(ask(root, mode, "SELECT count(*), sum(n) FROM t"), "300|45150\n");
            assert_eq!(ask(root, mode, "PRAGMA integrity_check"), "ok\n");
            assert!(database.metadata().unwrap().len() > 0);
        }
    });
}

/// A commit for each of 300 rows.
fn inserts(mode: &str) -> String {
    let head = format!("PRAGMA journal_mode={mode}; PRAGMA synchronous=FULL;\n");
    let rows = (1..=300).map(|n| format!("INSERT INTO t VALUES({n}, hex(randomblob(500)));\n"));
    [head, "CREATE TABLE t(n INTEGER, text TEXT);\n".to_owned()].into_iter().chain(rows).collect()
}

fn ask(root: &Path, mode: &str, question: &str) -> String {
    shell(root, &format!("sqlite3 {mode}.db '{question}'"))
}

/// Many at once, each in its directory and all in one.
#[test]
fn many_processes_work_at_once() {
    let Some(site) = Site::new() else { return };
    site.both(|root| {
        fs::create_dir(root.join("shared")).unwrap();
        shell(
            root,
            "for p in $(seq 8); do ( mkdir p$p; for n in $(seq 40); do \
             echo $p $n >p$p/f$n; mv p$p/f$n shared/$p-$n; ln shared/$p-$n p$p/l$n; \
             cat shared/*-$n >/dev/null 2>&1; test $n -lt 20 || rm p$p/l$n; done ) & done; wait",
        );
        assert_eq!(fs::read_dir(root.join("shared")).unwrap().count(), 320);
        assert_eq!(shell(root, "find p* -type f | wc -l").trim(), "152");
    });
}
