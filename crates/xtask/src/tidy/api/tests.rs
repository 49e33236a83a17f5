//! Lists of small libraries, and differences from them.

use super::super::workspace::{Dependency, Source, Text};
use super::*;

/// A library that depends on the crate `userbtrfs-inner`, with these root files, and other files.
fn workspace(library: &str, inner: &str, files: &[(&str, &str)]) -> Workspace {
    let package = |name: &str, folder: &str, dependencies| Package {
        name: name.to_owned(),
        manifest: String::new(),
        roots: vec![format!("crates/{folder}/src/lib.rs")],
        dependencies,
    };
    let dependency = Dependency { name: "userbtrfs-inner".to_owned(), dev: false };
    let packages = vec![
        package(LIBRARY, "userbtrfs", vec![dependency]),
        package("userbtrfs-inner", "inner", vec![]),
    ];
    let roots = [("crates/userbtrfs/src/lib.rs", library), ("crates/inner/src/lib.rs", inner)];
    let parse = |(path, text): &(&str, &str)| Source::parse(path, text).unwrap();
    let sources = roots.iter().chain(files).map(parse).collect();
    Workspace { packages, sources, texts: vec![] }
}

fn lines(library: &str, inner: &str) -> Vec<String> {
    list(&workspace(library, inner, &[])).unwrap().into_iter().collect()
}

#[test]
fn reexports_of_another_crate_have_its_items() {
    let library = "pub use userbtrfs_inner::{a::b, c as d, e::*}; pub use userbtrfs_inner::e as f;
        pub use uuid::Uuid as Id;";
    let inner = "pub mod a { pub fn b() {} pub fn hidden() {} }
        pub const c: u8 = 1;
        pub mod e { pub struct S(pub u8, u8); pub use self::S as T; pub(crate) struct Hidden; }";
    let expected = [
        "userbtrfs::Id  use uuid::Uuid",
        "userbtrfs::S  use userbtrfs::f::S",
        "userbtrfs::T  use userbtrfs::f::S",
        "userbtrfs::b  fn b()",
        "userbtrfs::d  const d: u8",
        "userbtrfs::f  mod",
        "userbtrfs::f::S  struct S(private fields)",
        "userbtrfs::f::S::0  field 0: u8",
        "userbtrfs::f::T  use userbtrfs::f::S",
    ];
    assert_eq!(lines(library, inner), expected);
}

#[test]
fn private_module_is_public_only_by_its_reexports() {
    let library = "mod private { pub struct Shown; pub struct Hidden; pub struct Arg; }
        pub use private::Shown;
        impl private::Hidden { pub fn f() {} }
        impl Shown { pub fn f(&self) {} fn g() {} #[cfg(test)] pub fn h() {} }
        #[cfg(test)] mod tests { impl super::Shown { pub fn i() {} } }";
    let expected = ["userbtrfs::Shown  struct Shown;", "userbtrfs::Shown::f  fn f(&self)"];
    assert_eq!(lines(library, ""), expected);
}

#[test]
fn files_of_modules_are_followed() {
    let files = [
        ("crates/inner/src/a.rs", "mod b; pub use b::B;"),
        ("crates/inner/src/a/b.rs", "pub struct B;"),
    ];
    let found = list(&workspace("pub use userbtrfs_inner::a::B;", "pub mod a;", &files)).unwrap();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["userbtrfs::B  struct B;"]);
}

#[test]
fn generics_and_signatures_are_as_written() {
    let library = "pub struct G<'a, T: Copy = u8> where T: Send, { pub t: &'a T }
        impl<'a, T: Copy + Send> G<'a, T> {
            pub fn f<U>(
                &self, // an argument
                u: U,
            ) -> Vec<
                (U, u8),
            >
            where
                U: Into<T>,
            { loop {} }
        }
        impl<T: Copy + Send> Iterator for G<'_, T> { type Item = T; }
        pub type R<T> = Result<T, u8>;
        pub const fn h() -> u8 { 1 }";
    let expected = [
        "userbtrfs::G  impl<T: Copy + Send> Iterator for G<'_, T> { type Item = T }",
        "userbtrfs::G  struct G<'a, T: Copy = u8> where T: Send",
        "userbtrfs::G::f  fn f<U>(&self, u: U) -> Vec<(U, u8)> where U: Into<T> \
         in impl<'a, T: Copy + Send> G<'a, T>",
        "userbtrfs::G::t  field t: &'a T",
        "userbtrfs::R  type R<T> = Result<T, u8>",
        "userbtrfs::h  const fn h() -> u8",
    ];
    assert_eq!(lines(library, ""), expected);
}

#[test]
fn features_are_shown_with_the_crate_that_has_them() {
    let library =
        "#[cfg(feature = \"extra\")] pub mod m { pub use userbtrfs_inner::A; pub fn f() {} }
        #[cfg(feature = \"extra\")] pub use userbtrfs_inner::B;
        pub use userbtrfs_inner::A;";
    let inner = "pub struct A; pub struct B;
        impl A { #[cfg(feature = \"tests\")] pub fn g() {} }
        #[cfg(feature = \"tests\")] impl Copy for B {}";
    let expected = [
        "userbtrfs::A  struct A;",
        "userbtrfs::A::g  fn g() [userbtrfs-inner/tests]",
        "userbtrfs::B  impl Copy for B [extra] [userbtrfs-inner/tests]",
        "userbtrfs::B  struct B; [extra]",
        "userbtrfs::m  mod [extra]",
        "userbtrfs::m::A  use userbtrfs::A [extra]",
        "userbtrfs::m::f  fn f() [extra]",
    ];
    assert_eq!(lines(library, inner), expected);
}

#[test]
fn enums_and_derives_are_listed() {
    let library = "#[derive(Clone, thiserror::Error)] #[non_exhaustive] pub enum E {
        /// A variant.
        #[error(\"a\")] A, B(#[from] std::io::Error), #[non_exhaustive] C { /** x */ x: u8 }, }";
    let expected = [
        "userbtrfs::E  #[non_exhaustive] enum E",
        "userbtrfs::E  impl Clone for E",
        "userbtrfs::E  impl Display for E",
        "userbtrfs::E  impl Error for E",
        "userbtrfs::E  impl From<std::io::Error> for E",
        "userbtrfs::E::A  variant A",
        "userbtrfs::E::B  variant B(std::io::Error)",
        "userbtrfs::E::C  #[non_exhaustive] variant C { x: u8 }",
    ];
    assert_eq!(lines(library, ""), expected);
}

#[test]
fn traits_and_implementations_of_and_for_others_are_listed() {
    let library = "pub trait T: Send + Sync { type A: Copy; const N: u8; fn f(&self);
            fn g(&self) -> u8 { 1 } }
        trait Private {}
        pub struct S { a: u8 }
        impl T for str {} impl<U: Copy> T for U {} impl T for S {} impl Private for S {}
        impl std::fmt::Debug for &S {} impl From<S> for u8 {}";
    let expected = [
        "userbtrfs::S  impl Debug for &S",
        "userbtrfs::S  impl From<S> for u8",
        "userbtrfs::S  impl T for S",
        "userbtrfs::S  struct S { private fields }",
        "userbtrfs::T  impl T for str",
        "userbtrfs::T  impl<U: Copy> T for U",
        "userbtrfs::T  trait T: Send + Sync",
        "userbtrfs::T::A  type A: Copy",
        "userbtrfs::T::N  const N: u8",
        "userbtrfs::T::f  fn f(&self)",
        "userbtrfs::T::g  provided fn g(&self) -> u8",
    ];
    assert_eq!(lines(library, ""), expected);
}

#[test]
fn calls_of_macros_are_listed_as_written() {
    let library = "bitflags! {
            #[derive(Clone)]
            pub struct Flags: u8 {
                /// One.
                const ONE = 1;
            }
            #[derive(Copy)]
            struct Hidden: u8 { const TWO = 2; }
        }
        impl Flags { pub fn f() {} }
        macro_rules! kinds {
            ($($name:ident,)*) => {
                pub enum Kind { $($name,)* }
                impl Kind {
                    /// All.
                    pub const ALL: u8 = 1;
                }
            };
        }
        kinds! {
            First,
        }";
    let library =
        format!("{library} mod m {{}} pub use crate::Flags as F; pub use crate::Kind as K;");
    let expected = [
        "userbtrfs::F  bitflags! #[derive(Clone)]",
        "userbtrfs::F  bitflags! const ONE = 1",
        "userbtrfs::F  bitflags! pub struct Flags: u8",
        "userbtrfs::F::f  fn f()",
        "userbtrfs::K  kinds! First",
        "userbtrfs::K  kinds! impl Kind",
        "userbtrfs::K  kinds! pub const ALL: u8 = 1",
        "userbtrfs::K  kinds! pub enum Kind { $($name,)* }",
    ];
    assert_eq!(lines(&library, ""), expected);
}

#[test]
fn item_that_cannot_be_found_is_a_finding() {
    let workspace = workspace("pub use userbtrfs_inner::made;", "", &[]);
    let text = "cannot find the item made in crates/inner/src/lib.rs";
    assert_eq!(check(&workspace), [Finding::new(LIST, 1, text)]);
}

#[test]
fn removed_and_added_items_are_findings() {
    let list = format!("{HEAD}userbtrfs::a  fn a()\nuserbtrfs::b  fn b()\n");
    let mut same = workspace("pub fn a() {} pub fn b() {}", "", &[]);
    same.texts = vec![Text { path: LIST.to_owned(), text: list.clone() }];
    assert_eq!(check(&same), []);
    let mut other = workspace("pub fn b() {} pub fn c() {}", "", &[]);
    other.texts = vec![Text { path: LIST.to_owned(), text: list }];
    let findings = check(&other);
    let shown: Vec<_> = findings.iter().map(|it| (it.line, it.what.as_str())).collect();
    assert_eq!(shown[0], (3, "removed from the API: userbtrfs::a  fn a()"));
    assert_eq!(shown[1], (4, "added to the API: userbtrfs::c  fn c()"));
    assert!(shown[2].1.contains("cargo xtask api --update"), "{shown:?}");
    assert_eq!(shown.len(), 3);
}

#[test]
fn missing_list_is_a_finding() {
    let findings = check(&workspace("pub fn a() {}", "", &[]));
    assert_eq!(findings[0].what, "added to the API: userbtrfs::a  fn a()");
}
