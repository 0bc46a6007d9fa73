//! The kinds of events, in one table, and texts that the collector looks for in agents' messages.
//!
//! Whoever records an event names a kind of the table, which determines its severity. On the wire and in the database a
//! kind is text: an agent of another version may send one that is not in the table ([`WireKind`]). The tables of events
//! in docs/ are generated.

use crate::mesh::Severity;
use std::fmt;

/// Suffix of the error of a task that its agent stopped after losing contact.
pub const LEASE_IS_OVER: &str = "(the lease)";

/// Who records the events of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// An agent that sends one makes a false claim about runs, certificates or other agents.
    Collector,
    Agent,
    /// The agent that samples a host, about its daemons.
    Sampler,
    /// The agent that samples a network namespace, about its interfaces.
    InterfaceSampler,
}

/// A section of the documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    Agents,
    Loads,
    Steps,
    Daemons,
    Database,
    Trust,
}

/// The definition of one kind.
#[derive(Debug)]
pub struct EventRow {
    pub kind: EventKind,
    /// The name on the wire and in the database.
    pub name: &'static str,
    pub topic: Topic,
    pub source: EventSource,
    pub severity: Severity,
    /// What happened, as a clause.
    pub meaning: &'static str,
    /// What to do, as a clause.
    pub remedy: &'static str,
    /// The figures in `detail`, as a clause; empty if there are none.
    pub detail: &'static str,
}

macro_rules! or {
    ($text:literal, $default:literal) => {
        $text
    };
    ($default:literal) => {
        $default
    };
}

macro_rules! kinds {
    ($($topic:ident { $($variant:ident = $name:literal, $source:ident, $severity:ident {
        meaning: $meaning:literal,
        $(remedy: $remedy:literal,)?
        $(detail: $detail:literal,)?
    })+ })+) => {
        /// A kind of event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventKind { $($($variant),+),+ }

        impl EventKind {
            /// In the order of the documents.
            pub const ALL: &'static [Self] = &[$($(Self::$variant),+),+];

            pub fn row(self) -> &'static EventRow {
                match self {
                    $($(Self::$variant => &EventRow {
                        kind: Self::$variant,
                        name: $name,
                        topic: Topic::$topic,
                        source: EventSource::$source,
                        severity: Severity::$severity,
                        meaning: $meaning,
                        remedy: or!($($remedy,)? "nothing"),
                        detail: or!($($detail,)? ""),
                    }),+),+
                }
            }

            /// The kind with this name; `None` for a kind of another version.
            pub fn parse(name: &str) -> Option<Self> {
                match name { $($($name => Some(Self::$variant),)+)+ _ => None }
            }
        }
    };
}

mod table;

pub use table::EventKind;

impl EventKind {
    pub fn as_str(self) -> &'static str {
        self.row().name
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The kind of an event that was received, with its severity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireKind(Inner);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Inner {
    Known(EventKind),
    /// Of another version.
    Unknown(String, Severity),
}

impl WireKind {
    /// A kind of another version has the severity that was sent with it; without a valid one, it is a warning.
    pub fn received(kind: String, severity: &str) -> Self {
        Self(match EventKind::parse(&kind) {
            Some(known) => Inner::Known(known),
            None => Inner::Unknown(kind, Severity::parse(severity).unwrap_or(Severity::Warning)),
        })
    }

    pub fn as_str(&self) -> &str {
        match &self.0 {
            Inner::Known(kind) => kind.as_str(),
            Inner::Unknown(kind, _) => kind,
        }
    }

    pub fn severity(&self) -> Severity {
        match &self.0 {
            Inner::Known(kind) => kind.row().severity,
            Inner::Unknown(_, severity) => *severity,
        }
    }

    /// Who records such events. Unknown kinds are an agent's.
    pub fn source(&self) -> EventSource {
        match &self.0 {
            Inner::Known(kind) => kind.row().source,
            Inner::Unknown(..) => EventSource::Agent,
        }
    }
}

impl From<EventKind> for WireKind {
    fn from(kind: EventKind) -> Self {
        Self(Inner::Known(kind))
    }
}

#[cfg(test)]
mod reference;
