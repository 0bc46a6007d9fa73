//! Contents of the state object: what a task has left in its pool.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ObjectsState {
    /// Bytes of each object.
    pub size: u64,
    /// Objects of each worker: those with lower numbers exist.
    pub objects: Vec<u64>,
}

impl ObjectsState {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers are always JSON")
    }

    /// `None` if it is not ours, or its objects have another size.
    pub(super) fn parse(text: &[u8], size: u64) -> Option<ObjectsState> {
        let state: ObjectsState = serde_json::from_slice(text).ok()?;
        (state.size == size).then_some(state)
    }

    /// Objects of one worker.
    pub(super) fn of(&self, worker: u32) -> u64 {
        self.objects.get(worker as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_back_and_another_size_is_none() {
        let state = ObjectsState {
            size: 4096,
            objects: vec![3, 0],
        };
        let text = state.to_bytes();
        assert_eq!(ObjectsState::parse(&text, 4096), Some(state.clone()));
        assert_eq!(ObjectsState::parse(&text, 8192), None);
        assert_eq!(ObjectsState::parse(b"{", 4096), None);
        assert_eq!((state.of(0), state.of(1), state.of(2)), (3, 0, 0));
    }
}
