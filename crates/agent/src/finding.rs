//! One finding of `doctor`.

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DoctorVerdict {
    Ok,
    /// The agent works, but a measurement or a kind of load is limited.
    Warn,
    /// The agent does not work in this configuration.
    Fail,
}

/// One line of the output.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The subject of the check, such as `clock` or `path`.
    pub check: &'static str,
    pub verdict: DoctorVerdict,
    /// The result.
    pub found: String,
    /// A remedy, if there is one.
    pub remedy: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            verdict: DoctorVerdict::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    pub(crate) fn warn(
        check: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            check,
            verdict: DoctorVerdict::Warn,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }

    pub(crate) fn fail(
        check: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            verdict: DoctorVerdict::Fail,
            ..Self::warn(check, found, remedy)
        }
    }
}
