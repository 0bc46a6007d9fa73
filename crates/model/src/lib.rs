//! Facts that agent and collector share, as tables. Pure: no I/O, no wire format, no database.

pub mod events;
pub mod figures;
pub mod fio;
pub mod kept_data;
pub mod limits;
pub mod mesh;
pub mod systems;
pub mod targets;
pub mod text;
pub mod units;
