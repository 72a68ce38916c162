//! Errors of the programs of iptables as errors of a sync.

use vipline_iptables as tool;

use crate::Error;

/// Returns the error of a sync or of an opening.
pub(in crate::backend) fn of_program(error: tool::Error) -> Error {
    match is_permanent(&error) {
        true => Error::custom_permanent(error),
        false => Error::custom(error),
    }
}

/// Returns whether a retry cannot succeed.
pub(super) fn is_permanent(error: &tool::Error) -> bool {
    use tool::Error::{Denied, MissingProgram, Outdated, Unsupported};
    matches!(
        error,
        Denied { .. } | MissingProgram { .. } | Outdated { .. } | Unsupported { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_privileges_and_programs_are_permanent() {
        let (program, message) = (|| Box::from("iptables-restore"), || Box::from("no"));
        for error in [
            tool::Error::Denied {
                program: program(),
                message: message(),
            },
            tool::Error::MissingProgram { program: program() },
            tool::Error::Outdated {
                program: program(),
                answer: message(),
            },
            tool::Error::Unsupported {
                program: program(),
                message: message(),
            },
        ] {
            let error = of_program(error);
            assert!(error.is_permanent(), "{error}");
        }
        let locked = tool::Error::Locked {
            wait: 5,
            message: "held".into(),
        };
        assert!(!of_program(locked).is_permanent());
    }
}
