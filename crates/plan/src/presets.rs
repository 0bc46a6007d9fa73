//! Presets: the behaviour of another tool, or of a study, as phases that a plan includes by name.
//!
//! A preset never changes: a plan that names one is stored unexpanded and must keep its meaning. Different behaviour
//! gets a new name.

use benchmesh_workloads::params::{KeyValue, ValueType};
use serde_json::Value;
use std::sync::LazyLock;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Named phases.
#[derive(Debug)]
pub struct Preset {
    pub name: &'static str,
    /// The text in plan syntax, starting with its explanation.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal)*) => {
        &[$(Preset {
            name: $name,
            text: include_str!(concat!("../../../plans/presets/", $name, ".toml")),
        }),*]
    };
}

/// All presets.
pub const PRESETS: &[Preset] = presets! {
    "bonnie-1.03"
    "bonnie-1.97"
    "dd-nc"
    "fio-4k"
    "iozone-a"
    "rados-bench"
    "untar-rm-fill"
};

static NAMES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| PRESETS.iter().map(|preset| preset.name).collect());

/// The preset that a phase names.
#[derive(Debug)]
pub struct PresetName;

impl KeyValue for PresetName {
    fn value_type() -> ValueType {
        ValueType::Words(&NAMES)
    }

    fn read(_value: &Value) -> Result<Self, String> {
        Ok(Self)
    }
}

/// Finds a preset by name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

impl Preset {
    /// The explanation at the beginning of its text.
    pub fn summary(&self) -> String {
        let lines = self.text.lines().map_while(|line| line.strip_prefix("# "));
        lines.collect::<Vec<&str>>().join(" ")
    }

    /// The phases of its text, unchanged. Each preset is read once: a plan may name it often.
    pub(super) fn phases(&self) -> &'static [DeTable<'static>] {
        static READ: LazyLock<Vec<Vec<DeTable<'static>>>> =
            LazyLock::new(|| PRESETS.iter().map(Preset::read).collect());
        let at = PRESETS.iter().position(|preset| preset.name == self.name);
        at.and_then(|at| READ.get(at)).map_or(&[], Vec::as_slice)
    }

    fn read(&self) -> Vec<DeTable<'static>> {
        let document = DeTable::parse(self.text).map(Spanned::into_inner);
        let phases = document
            .ok()
            .and_then(|mut document| document.remove("phase"));
        match phases.map(Spanned::into_inner) {
            Some(DeValue::Array(phases)) => phases
                .into_iter()
                .filter_map(|phase| match phase.into_inner() {
                    DeValue::Table(table) => Some(table),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        }
    }
}
