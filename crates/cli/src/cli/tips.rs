//! Tips in errors of the command line.

use clap::error::{ContextKind, ContextValue};

/// Removes the tip to pass a word that looks like an option as a value: it names a path that begins
/// with a dash, where nearly always the option does not exist.
pub(crate) fn without_misleading(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::StyledStrs(tips)) = error.remove(ContextKind::Suggested) {
        let tips: Vec<_> =
            tips.into_iter().filter(|tip| !tip.to_string().starts_with("to pass ")).collect();
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
}
