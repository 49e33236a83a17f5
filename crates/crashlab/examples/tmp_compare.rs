//! Temporary.
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let ours = String::from_utf8(std::fs::read(&a[1]).unwrap()).unwrap();
    let theirs = std::fs::read(&a[2]).unwrap();
    let d = userbtrfs_crashlab::dump_compare::compare(&ours, &theirs);
    println!(
        "{} units, {} differences",
        userbtrfs_crashlab::dump_compare::normalize(&ours).len(),
        d.len()
    );
    for l in d {
        println!("  {}", l.chars().take(400).collect::<String>());
    }
}
