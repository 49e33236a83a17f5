//! References: delayed ones, and what the extent tree makes of them.

mod delayed;
mod only;
mod run;
