//! Conversion of the collector's types to messages of `Control`, and of its errors to statuses.

use benchmesh_answers::{
    compare::CompareError,
    query::{self, QueryError, Value},
};
use benchmesh_model::mesh::RunState;
use benchmesh_proto::v1;
use benchmesh_store::{
    StoreError, annotate::AnnotateError, import::StoreImportError, ingest::IngestError,
};
use benchmesh_workloads::error_chain;
use tonic::Status;

/// The status of a refused batch.
pub(super) fn ingest_status(error: &IngestError) -> Status {
    let message = error.to_string();
    match error {
        IngestError::Closed => Status::unavailable(message),
        IngestError::Hole { .. } | IngestError::Overlap { .. } => {
            Status::failed_precondition(message)
        }
        _ => Status::invalid_argument(message),
    }
}

/// A failing database is not the caller's fault.
pub(super) fn store_status(error: &StoreError) -> Status {
    let message = error_chain(error);
    match error {
        StoreError::NoSuch { .. } | StoreError::NoRunYet => Status::not_found(message),
        StoreError::Closed => Status::unavailable(message),
        _ => Status::internal(message),
    }
}

pub(super) fn annotate_status(error: &AnnotateError) -> Status {
    match error {
        AnnotateError::Wrong(message) => Status::invalid_argument(message.clone()),
        AnnotateError::Store(error) => store_status(error),
    }
}

pub(super) fn import_status(error: &StoreImportError) -> Status {
    match error {
        StoreImportError::Known { .. } | StoreImportError::Wrong(_) => {
            Status::invalid_argument(error.to_string())
        }
        StoreImportError::Store(error) => store_status(error),
    }
}

pub(super) fn compare_status(error: &CompareError) -> Status {
    let message = error_chain(error);
    match error {
        CompareError::NoRun { .. } | CompareError::NoRunYet | CompareError::NoBaseline { .. } => {
            Status::not_found(message)
        }
        error if error.is_request() => Status::invalid_argument(message),
        _ => Status::internal(message),
    }
}

/// For replies that carry a state as text.
pub(super) fn state_word(state: RunState) -> String {
    state.as_str().to_owned()
}

pub(super) fn query_status(error: &QueryError) -> Status {
    let message = error_chain(error);
    match error {
        QueryError::NotReading
        | QueryError::SeveralStatements
        | QueryError::NoStatement
        | QueryError::ZeroByte
        | QueryError::Sql { .. } => Status::invalid_argument(message),
        QueryError::TimeLimit { .. } => Status::deadline_exceeded(message),
        QueryError::MemoryLimit { .. }
        | QueryError::TempLimit { .. }
        | QueryError::RowTooLarge { .. }
        | QueryError::AnswerTooLarge { .. }
        | QueryError::NoThread { .. } => Status::resource_exhausted(message),
        _ => Status::internal(message),
    }
}

pub(super) fn query_reply(rows: Vec<query::ResultRow>) -> v1::QueryReply {
    use v1::query_value::Value as Wire;
    let value = |value| v1::QueryValue {
        value: match value {
            Value::Null => None,
            Value::Integer(n) => Some(Wire::Integer(n)),
            Value::Real(n) => Some(Wire::Real(n)),
            Value::Text(text) => Some(Wire::Text(text)),
            Value::Blob(bytes) => Some(Wire::Blob(bytes)),
        },
    };
    v1::QueryReply {
        columns: Vec::new(),
        rows: rows
            .into_iter()
            .map(|row| v1::QueryRow {
                values: row.into_iter().map(value).collect(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use benchmesh_proto::MAX_MESSAGE_BYTES;
    use proptest::prelude::*;
    use prost::Message;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::Integer),
            any::<f64>().prop_map(Value::Real),
            any::<String>().prop_map(Value::Text),
            prop::collection::vec(any::<u8>(), 0..100).prop_map(Value::Blob),
        ]
    }

    proptest! {
        /// Every value arrives unchanged, and NULL is not an empty text.
        #[test]
        fn rows_keep_their_values(rows in prop::collection::vec(prop::collection::vec(value(), 0..6), 0..20)) {
            use v1::query_value::Value as Wire;
            let sent = query_reply(rows.clone()).encode_to_vec();
            let came = v1::QueryReply::decode(sent.as_slice()).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(came.rows.len(), rows.len());
            for (row, came) in rows.into_iter().zip(came.rows) {
                let came: Vec<Value> = came
                    .values
                    .into_iter()
                    .map(|value| match value.value {
                        None => Value::Null,
                        Some(Wire::Integer(n)) => Value::Integer(n),
                        Some(Wire::Real(n)) => Value::Real(n),
                        Some(Wire::Text(text)) => Value::Text(text),
                        Some(Wire::Blob(bytes)) => Value::Blob(bytes),
                    })
                    .collect();
                // NaN is not equal to itself.
                prop_assert_eq!(format!("{row:?}"), format!("{came:?}"));
            }
        }
    }

    #[test]
    fn the_largest_batch_of_rows_fits_into_a_message() {
        // As many rows as a batch holds before it is passed on, as many columns as a statement has, and the longest
        // row.
        let small = vec![vec![Value::Integer(i64::MIN); 500]; 64];
        let long = vec![Value::Blob(vec![0; query::MAX_ROW_BYTES])];
        let reply = query_reply(small.into_iter().chain([long]).collect());
        assert!(reply.encoded_len() < MAX_MESSAGE_BYTES);
    }
}
