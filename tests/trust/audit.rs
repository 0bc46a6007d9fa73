//! Changes of trust, starts and stops are events that name their requester, and no secret is stored.

use super::*;

/// Each change of trust is an event with its requester and the requester's address, and without a secret.
#[test]
fn changes_of_trust_are_events_that_a_query_shows() {
    let mut mesh = Mesh::with_collector_arguments(&["--certificate-lifetime", "1h"]);
    mesh.add(Agent::named("own"));
    let users = directory();
    let joined = |name: &str, token: &str| {
        let user = users.path().join(name);
        let agent = joining(name, token, &user).state_dir(&user.join("state"));
        let process = mesh.agent_process(&agent);
        mesh.until_attached(&[name]);
        process
    };
    let for_two = token(&mesh, &["--uses", "2"]);
    let _b = joined("b", &for_two);
    let c = joined("c", &for_two);
    drop(c);
    // The test ages the certificate in its file.
    let file = users.path().join("c/state/credentials.json");
    let aged = Credentials {
        issued_s: 0,
        ..Credentials::load(&file).unwrap().unwrap()
    };
    converse(LIMIT, async {
        let channel = dial_as(mesh.address(), &aged).await.unwrap();
        benchmesh_trust::renew(channel, &aged).await.unwrap();
    });
    assert_eq!(mesh.command(&["collector", "revoke", "c"]).code, 0);
    let sql = "SELECT kind, detail ->> 'role' AS role, detail ->> 'name' AS name, detail ->> 'address' AS address,
                      detail ->> 'of_role' AS of_role, detail ->> 'of_name' AS of_name, detail ->> 'token' AS token, message
               FROM events WHERE kind LIKE 'token-%' OR kind LIKE 'certificate-%' ORDER BY id";
    let asked = || {
        let output = mesh.command(&["query", sql, "--format", "json"]);
        assert_eq!(output.code, 0, "{}", output.all());
        output.out
    };
    until_true("all is stored", LIMIT, || {
        asked().contains("certificate-revoked")
    });
    let text = asked();
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = rows["rows"].as_array().unwrap_or_else(|| panic!("{text}"));
    let told: Vec<String> = rows
        .iter()
        .map(|row| {
            let of = |name: &str| row[name].as_str().unwrap_or("-").to_owned();
            assert_eq!(of("address"), "127.0.0.1", "{row}");
            [of("kind"), of("role"), of("name"), of("of_name")].join(" ")
        })
        .collect();
    assert_eq!(
        told,
        [
            "certificate-issued owner owner own",
            "token-made owner owner -",
            "token-used - - b",
            "certificate-issued - - b",
            "token-used - - c",
            "token-exhausted - - -",
            "certificate-issued - - c",
            "certificate-renewed agent c c",
            "certificate-revoked owner owner c",
        ],
        "{text}"
    );
    // All events of one token have the token's number, which is not part of the secret.
    let numbers: BTreeSet<&str> = rows
        .iter()
        .filter_map(|row| row["token"].as_str())
        .collect();
    assert_eq!(numbers.len(), 1, "{text}");
    assert!(
        numbers.iter().all(|number| !for_two.contains(*number)),
        "{text}"
    );
    assert!(!text.contains(&for_two), "{text}");
}

/// The user who starts or stops a run is recorded in an event of the run, and no secret is stored anywhere.
#[test]
fn who_starts_and_stops_is_kept_and_no_secret_is() {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a"));
    let users = directory();
    let tokens = [
        token(&mesh, &["--role", "operator"]),
        token(&mesh, &["--ttl", "1h"]),
    ];
    let as_ann = |arguments: &[&str]| {
        let mut command = mesh.benchmesh();
        command
            .args(arguments)
            .env("BENCHMESH_CREDENTIALS", users.path().join("ann"));
        let output = CommandOutput::of(&command.output().unwrap());
        assert_eq!(output.code, 0, "{}", output.all());
        output
    };
    let joined = as_ann(&["join", &tokens[0], "--name", "ann"]);
    let joining =
        joining("b", &tokens[1], &users.path().join("b")).state_dir(&users.path().join("state-b"));
    let agent = mesh.agent_process(&joining);
    mesh.until_attached(&["b"]);
    let plan = mesh.plan("[[phase]]\nworkload = \"null\"\nruntime = \"60s\"\nrate_iops = 1000\n");
    as_ann(&["run", "--detach", plan.to_str().unwrap()]);
    as_ann(&["stop", "last", "--reason", "enough"]);
    let ends = mesh.until_run_is(&["stopped", "done"], LIMIT);
    let events = || {
        mesh.db().rows(
            "SELECT kind, severity, message, detail ->> 'role', detail ->> 'name', detail ->> 'address'
             FROM events WHERE kind LIKE '%-requested' ORDER BY id",
        )
    };
    until_true("both are stored", LIMIT, || events().len() == 2);
    let told = format!("{:?}", events());
    for part in [
        "start-requested",
        "started by operator ann from 127.0.0.1",
        "stop-requested",
        "stopped by operator ann from 127.0.0.1",
    ] {
        assert!(told.contains(part), "{part} ({ends}): {told}");
    }
    // Neither tokens nor private keys are in a log, in the database or in an answer.
    let keys = [
        mesh.directory().join("state-a/credentials.json"),
        users.path().join("state-b/credentials.json"),
    ]
    .map(|file| Credentials::load(&file).unwrap().unwrap().key);
    let secret_of_key = |key: &String| key.lines().nth(1).unwrap().to_owned();
    let secrets: Vec<String> = tokens
        .iter()
        .cloned()
        .chain(keys.iter().map(secret_of_key))
        .collect();
    let mut kept = vec![
        mesh.collector().log(),
        mesh.agent("a").log(),
        agent.log(),
        joined.all(),
    ];
    for suffix in ["", "-wal"] {
        let mut file = mesh.db_path().as_os_str().to_owned();
        file.push(suffix);
        let bytes = std::fs::read(file).unwrap_or_default();
        kept.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    for secret in &secrets {
        assert!(secret.len() > 20, "{secret}");
        let found = kept.iter().position(|text| text.contains(secret));
        assert_eq!(found, None, "a secret is kept");
    }
}
