//! Check of the iptables programs and of the kernel's support for them.

use vipline_iptables::{Client, Error};
use vipline_service_model::Family;

use crate::backend::iptables::plan::rules::iptables_family;

/// An empty section. It changes nothing, but fails if the kernel lacks the table.
const NAT: &str = "*nat\nCOMMIT\n";

/// Finds the iptables programs of a family and makes them open table `nat`.
///
/// Fails only if a retry cannot succeed.
pub(in crate::backend) fn check_family(family: Family) -> Result<(), Error> {
    let tested = Client::open(iptables_family(family)).and_then(|mut it| it.test(&NAT));
    tested.or_else(|error| match is_permanent(&error) {
        true => Err(error),
        false => Ok(()),
    })
}

/// Returns whether an error is permanent. After other errors the family is served and
/// syncs are retried.
fn is_permanent(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound { .. }
            | Error::Outdated { .. }
            | Error::Unsupported { .. }
            | Error::Denied { .. }
            | Error::Rejected { .. }
            | Error::Spawn { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_whose_tables_are_locked_is_served() {
        let locked = Error::Locked {
            wait: 5,
            message: "held".into(),
        };
        assert!(!is_permanent(&locked));
        let missing = Error::NotFound {
            program: "ip6tables-save".into(),
        };
        assert!(is_permanent(&missing));
    }
}
