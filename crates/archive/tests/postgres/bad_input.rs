//! Requests and servers that are refused in words.

use super::lab::{DATABASE, Lab, push};
use benchmesh_archive::postgres::Archive;

#[tokio::test]
async fn what_is_not_ours_is_left_alone() {
    let Some(lab) = Lab::new() else { return };
    let refused = async |expected: &str| {
        let error = push(&lab.request()).await.unwrap_err();
        assert!(error.is_request(), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    };
    // An administrator may make the schema before.
    lab.server.sql(
        DATABASE,
        "CREATE SCHEMA benchmesh; CREATE TABLE benchmesh.mine (id int)",
    );
    refused("is not an archive of benchmesh").await;
    lab.server
        .sql(DATABASE, "CREATE TABLE benchmesh.archive (id int)");
    refused("is not an archive of benchmesh").await;
    assert_eq!(
        lab.server.sql(
            DATABASE,
            "SELECT count(*) FROM pg_class WHERE relnamespace = 'benchmesh'::regnamespace"
        ),
        "2"
    );
    lab.server
        .sql(DATABASE, "DROP TABLE benchmesh.archive, benchmesh.mine");
    lab.push().await;
    lab.server
        .sql(DATABASE, "UPDATE benchmesh.archive SET layout = 99");
    refused("a newer benchmesh made this archive (layout 99)").await;
    lab.server
        .sql(DATABASE, "UPDATE benchmesh.archive SET layout = 1");
    lab.server.sql(
        DATABASE,
        "CREATE ROLE collector LOGIN IN ROLE benchmesh_writer",
    );
    let mut request = lab.request();
    request.server = lab.to("collector");
    let error = push(&request).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("connected as its owner postgres"),
        "{error}"
    );
    let mut archive = Archive::connect(&lab.to("postgres"), &super::lab::patience())
        .await
        .unwrap();
    let error = archive.require().await.unwrap_err();
    assert!(
        error.to_string().contains("this archive has layout 1"),
        "{error}"
    );
}

#[tokio::test]
async fn wrong_runs_and_databases_are_refused() {
    let Some(lab) = Lab::new() else { return };
    let mut archive = Archive::connect(&lab.to("postgres"), &super::lab::patience())
        .await
        .unwrap();
    let error = archive.require().await.unwrap_err();
    assert!(error.to_string().contains("there is no archive"), "{error}");
    lab.change("UPDATE runs SET state = 'running' WHERE id = 2");
    for (run, expected) in [
        ("2", "a run is archived when it has ended"),
        ("nobody", "there is no run"),
    ] {
        let mut request = lab.request();
        request.runs = vec![run.to_owned()];
        let error = push(&request).await.unwrap_err();
        assert!(
            error.is_request() && error.to_string().contains(expected),
            "{error}"
        );
    }
    let url = lab.server.url("postgres", "nowhere");
    let mut request = lab.request();
    let origin = benchmesh_archive::postgres::UrlOrigin::CommandLine;
    request.server = benchmesh_archive::postgres::Server::parse(&url, origin, None).unwrap();
    let error = push(&request).await.unwrap_err();
    assert!(
        error.to_string().contains("there is no such database"),
        "{error}"
    );
    // A run that goes is left out of all.
    assert_eq!(lab.push().await.new, 2);
}

/// A name in a message that must not become SQL.
#[tokio::test]
async fn a_site_with_a_quote_is_a_site() {
    let Some(lab) = Lab::new() else { return };
    let mut request = lab.request();
    request.site = benchmesh_archive::postgres::Site::Named(String::from("rack '7'; --"));
    assert_eq!(push(&request).await.unwrap().new, 3);
    let back = lab.directory.path().join("back.db");
    let fetched = benchmesh_archive::postgres::fetch::FetchRequest {
        runs: vec![String::from("rack '7'; --:1")],
        db: back,
        server: lab.to("postgres"),
        patience: super::lab::patience(),
    };
    let cancel = tokio_util::sync::CancellationToken::new();
    let fetched =
        benchmesh_archive::postgres::fetch::fetch_runs(&fetched, &cancel, &mut |_| ()).await;
    assert_eq!(fetched.unwrap().runs, 1);
    request.site = benchmesh_archive::postgres::Site::Named(String::from("a:b"));
    assert!(push(&request).await.unwrap_err().is_request());
}
