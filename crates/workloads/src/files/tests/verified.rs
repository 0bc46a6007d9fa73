//! What is read is what was written, or it is told where not.

use super::*;

fn params() -> Value {
    json!({"files": 20, "numjobs": 2, "size": {"max": "30k"}, "bs": "8k", "append": 700, "verify": true})
}

fn bytes() -> u64 {
    SizeSpec::Uniform {
        min: 0,
        max: 30 << 10,
    }
    .total(1, 20, 1)
}

#[test]
fn what_was_created_appended_and_renamed_is_read_as_it_was_written() {
    let cell = Cell::new();
    cell.run("create", params()).expect(20, bytes(), 0);
    cell.run("read", params()).expect(20, bytes(), 0);
    cell.run("append", params()).expect(20, 20 * 700, 0);
    cell.run("append", params()).expect(20, 20 * 700, 0);
    cell.run("rename", params()).expect(20, 0, 0);
    cell.run("read", params())
        .expect(20, bytes() + 20 * 1400, 0);
    let mut random = params();
    random["order"] = json!("random");
    cell.run("read", random).expect(20, bytes() + 20 * 1400, 0);
    for (key, value) in [
        ("data", json!({"compress": 50})),
        ("directories-per", json!("task")),
    ] {
        let cell = Cell::new();
        let mut other = params();
        other[key] = value;
        cell.run("read", other).expect(20, bytes(), 0);
    }
}

#[test]
fn a_flipped_bit_and_a_swapped_file_are_found() {
    let cell = Cell::new();
    let params = json!({"files": 5, "size": "20k", "bs": "8k", "verify": true});
    cell.run("create", params.clone());
    let path = |number: u32| {
        cell.task_dir()
            .join(format!("w000000000/d000000000/c{number:09}"))
    };
    let mut content = fs::read(path(2)).unwrap();
    content[12_345] ^= 1;
    fs::write(path(2), content).unwrap();
    fs::copy(path(3), path(4)).unwrap();
    let outcome = cell.run("read", params);
    outcome.expect(3, 3 * 20_480, 2);
    let told: Vec<&str> = outcome
        .end
        .errors
        .iter()
        .map(|error| &*error.first)
        .collect();
    assert_eq!(
        outcome
            .end
            .errors
            .iter()
            .map(|error| error.count)
            .sum::<u64>(),
        2
    );
    assert!(told[0].contains("c000000002 at offset 12345"), "{told:?}");
}
