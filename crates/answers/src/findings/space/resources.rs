//! What a target may run out of, space and inodes, with the thresholds of each.

use benchmesh_results::real;
use benchmesh_workloads::figures;

/// A resource that may run out.
pub(super) struct Resource {
    /// The column of `target_samples` with the amount left.
    pub column: &'static str,
    pub percent: &'static str,
    pub name: &'static str,
    /// How sentences describe a target with nothing, or little, left.
    pub ran_out: &'static str,
    pub nearly: &'static str,
    /// A larger amount left is not scarce, whatever its share. Less than a tenth of it may be an error.
    pub max_scarce: f64,
    /// A smaller amount left counts as nothing.
    pub min_usable: f64,
    /// Minimum relevant growth of the used amount over the run.
    pub min_growth: f64,
    pub is_bytes: bool,
}

/// In the order of the columns of `scarce::LOWEST` and `growth::USED`.
pub(super) const RESOURCES: [Resource; 2] = [
    Resource {
        column: "free_bytes",
        percent: "free_percent",
        name: "free space",
        ran_out: "ran out of space",
        nearly: "was nearly full",
        max_scarce: 107_374_182_400.0,
        min_usable: 1_048_576.0,
        min_growth: 16_777_216.0,
        is_bytes: true,
    },
    Resource {
        column: "free_files",
        percent: "free_files_percent",
        name: "number of free inodes",
        ran_out: "ran out of inodes",
        nearly: "was nearly out of inodes",
        max_scarce: 1e6,
        min_usable: 1.0,
        min_growth: 1000.0,
        is_bytes: false,
    },
];

impl Resource {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "to be shown: not below 0, and rounded"
    )]
    pub fn amount(&self, value: f64) -> String {
        match self.is_bytes {
            true => figures::bytes(value.max(0.0) as u64),
            false => figures::rate(value.max(0.0)),
        }
    }

    /// ` of 100 GiB`; empty for inodes.
    pub fn of_size(&self, size_bytes: i64) -> String {
        match self.is_bytes {
            true => format!(" of {}", self.amount(real(size_bytes))),
            false => String::new(),
        }
    }
}
