//! Colours and other marks of what is not plain text.

use super::super::view::Severity;
use benchmesh_model::mesh::RunState;
use ratatui::style::{Color, Modifier, Style};

/// The look of what is not plain.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    pub(super) warning: Style,
    pub(super) error: Style,
    pub(super) dim: Style,
    pub(super) strong: Style,
}

impl Palette {
    pub fn coloured() -> Self {
        Self {
            warning: Style::new().fg(Color::Yellow),
            error: Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            ..Self::plain()
        }
    }

    /// Without colours.
    pub fn plain() -> Self {
        Self {
            warning: Style::new().add_modifier(Modifier::BOLD),
            error: Style::new().add_modifier(Modifier::REVERSED),
            dim: Style::new().add_modifier(Modifier::DIM),
            strong: Style::new().add_modifier(Modifier::BOLD),
        }
    }

    pub(super) fn severity(self, severity: Severity) -> Style {
        match severity {
            Severity::Info => Style::new(),
            Severity::Warning => self.warning,
            Severity::Error => self.error,
        }
    }

    pub(super) fn run(self, state: RunState) -> Style {
        match state {
            RunState::Failed => self.error,
            RunState::Stopped => self.warning,
            _ => self.strong,
        }
    }
}
