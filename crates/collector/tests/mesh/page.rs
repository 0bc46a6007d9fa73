//! The collector over HTTP, as seen by other programs: admission, answers, refusals.

use super::{fake_agent::Script, stage::Stage};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const LIMIT: Duration = Duration::from_secs(60);
const NULL: &str = "name = \"<b>n</b>\"\n[[phase]]\nworkload = \"null\"\n";

/// The page's address and its token.
pub struct Page {
    host: String,
    token: String,
}

pub struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

impl Page {
    pub fn of(stage: &Stage) -> Self {
        let rest = stage.url.strip_prefix("http://").unwrap();
        let (host, token) = rest.split_once("/?token=").unwrap();
        Self {
            host: host.to_owned(),
            token: token.to_owned(),
        }
    }

    /// Sends one request of exactly these lines.
    async fn send(&self, request: &str) -> Answer {
        let exchange = async {
            let mut stream = TcpStream::connect(&self.host).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let text = timeout(LIMIT, exchange).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        Answer {
            status,
            head: head.to_owned(),
            body: if is_chunked {
                unchunked(body)
            } else {
                body.to_owned()
            },
        }
    }

    async fn get_with(&self, path: &str, host: &str, headers: &str) -> Answer {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"
        ))
        .await
    }

    pub async fn get(&self, path: &str) -> Answer {
        let header = format!("Authorization: Bearer {}\r\n", self.token);
        self.get_with(path, &self.host, &header).await
    }

    async fn post(&self, path: &str, body: &str, headers: &str) -> Answer {
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Authorization: Bearer {}\r\n{headers}\r\n{body}",
            self.host,
            body.len(),
            self.token
        ))
        .await
    }

    async fn ask(&self, sql: &str) -> Answer {
        let question = json!({ "sql": sql }).to_string();
        self.post("/api/v1/query", &question, "").await
    }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
        if size == 0 {
            break;
        }
    }
    whole
}

#[tokio::test]
async fn the_token_is_asked_for_and_opens_the_page_once_and_for_all() {
    let stage = Stage::new().await;
    let page = Page::of(&stage);
    for path in ["/", "/api/v1/runs", "/metrics", "/assets/page.js", "/none"] {
        let answer = page.get_with(path, &page.host, "").await;
        assert_eq!(answer.status, 401, "{path}");
        assert!(answer.json()["error"].as_str().unwrap().contains("token"));
    }
    let asked = page
        .get_with("/", &page.host, "Accept: text/html,*/*\r\n")
        .await;
    assert_eq!(asked.status, 401);
    assert!(asked.body.contains("<form"), "{}", asked.body);
    let wrong = page
        .get_with("/?token=0123", &page.host, "Accept: text/html\r\n")
        .await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
    // The token in the address becomes a cookie that scripts cannot read and other sites cannot send.
    let opened = page
        .get_with(&format!("/?token={}", page.token), &page.host, "")
        .await;
    assert_eq!((opened.status, opened.header("location")), (303, Some("/")));
    let cookie = opened.header("set-cookie").unwrap();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
        "{cookie}"
    );
    let cookie = cookie.split(';').next().unwrap();
    let page_again = page
        .get_with("/", &page.host, &format!("Cookie: {cookie}\r\n"))
        .await;
    assert_eq!(page_again.status, 200);
    let policy = page_again.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"));
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.get("/").await.status, 200);
}

#[tokio::test]
async fn names_of_others_and_pages_of_others_are_refused() {
    let stage = Stage::new().await;
    let page = Page::of(&stage);
    let bearer = format!("Authorization: Bearer {}\r\n", page.token);
    for host in [
        "evil.example",
        "evil.example:4751",
        "127.0.0.1.evil.example",
    ] {
        let answer = page.get_with("/api/v1/runs", host, &bearer).await;
        assert_eq!(answer.status, 421, "{host}");
    }
    assert_eq!(
        page.get_with("/api/v1/runs", "localhost", &bearer)
            .await
            .status,
        200
    );
    let question = json!({ "sql": "SELECT 1" }).to_string();
    for headers in [
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
    ] {
        let answer = page.post("/api/v1/query", &question, headers).await;
        assert_eq!(answer.status, 403, "{headers}");
    }
}

#[tokio::test]
async fn queries_read_within_their_bounds_and_answer_in_one_document() {
    let stage = Stage::new().await;
    let page = Page::of(&stage);
    let answer = page
        .ask("SELECT 1 AS a, NULL AS b, 'x' AS c, x'00ff' AS d, 9007199254740993 AS e, 0.5 AS f")
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.json(),
        json!({
            "columns": ["a", "b", "c", "d", "e", "f"],
            "rows": [[1, null, "x", "00ff", "9007199254740993", 0.5]],
            "truncated": false,
            "error": null
        })
    );
    for (sql, status, word) in [
        ("DELETE FROM runs", 400, "only reading"),
        ("SELECT 1; SELECT 2", 400, "one statement"),
        ("SELEC 1", 400, "syntax"),
        ("", 400, "no statement"),
    ] {
        let answer = page.ask(sql).await;
        assert_eq!(answer.status, status, "{sql}: {}", answer.body);
        let error = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains(word), "{sql}: {error}");
    }
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT i FROM n";
    // The last batch may be cut, or end at the limit.
    for (rows, limit, truncated) in [
        (100_000, 700, true),
        (3, 2, true),
        (3, 3, false),
        (512, 512, false),
        (513, 512, true),
        (1, 0, true),
        (0, 0, false),
    ] {
        let sql = format!("SELECT * FROM ({numbers}) LIMIT {rows}");
        let some = json!({ "sql": sql, "limit": limit }).to_string();
        let some = page.post("/api/v1/query", &some, "").await.json();
        let expected = usize::try_from(u64::min(rows, limit)).unwrap();
        assert_eq!(some["rows"].as_array().unwrap().len(), expected);
        assert_eq!(some["truncated"], truncated, "{limit} of {rows}");
    }
    let all = page.ask(numbers).await.json();
    assert_eq!(all["rows"].as_array().unwrap().len(), 100_000);
    assert_eq!(all["truncated"], false);
    for body in [
        "",
        "{}",
        "{\"sql\": 1}",
        "{\"sql\": \"SELECT 1\", \"x\": 1}",
    ] {
        let answer = page.post("/api/v1/query", body, "").await;
        assert!(
            (400..500).contains(&answer.status),
            "{body}: {}",
            answer.status
        );
        assert!(answer.json()["error"].is_string(), "{body}");
    }
}

/// Every answer has the shape described in docs/openapi.json, before, during and after a run.
#[tokio::test]
async fn answers_have_the_shape_that_the_openapi_file_gives() {
    let stage = Stage::new().await;
    let page = Page::of(&stage);
    let file: Value = serde_json::from_str(include_str!("../../../../docs/openapi.json")).unwrap();
    let check = |path: &str, answer: &Answer| {
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let schema = &file["paths"][path]["get"]["responses"]["200"]["content"];
        let mut schema = schema["application/json"]["schema"].clone();
        schema["components"] = file["components"].clone();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(&answer.json())
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{path}: {errors:#?}\n{}", answer.body);
    };
    let plain = [
        "/api/v1/overview",
        "/api/v1/agents",
        "/api/v1/daemons",
        "/api/v1/hosts",
        "/api/v1/events",
        "/api/v1/runs",
        "/api/v1/baselines",
        "/api/v1/questions",
    ];
    for path in plain {
        check(path, &page.get(path).await);
    }
    assert_eq!(page.get("/api/v1/runs/7").await.status, 404);
    assert_eq!(page.get("/api/v1/runs/7/pictures").await.status, 404);
    let script = Script {
        runs_for: Duration::from_secs(3),
        ..Script::default()
    };
    let _agent = stage.agent("a<script>", script).await;
    let started = stage.start(NULL).await.unwrap();
    stage.until_step(started.run_id, "running").await;
    check("/api/v1/overview", &page.get("/api/v1/overview").await);
    until_exposed(&page, "benchmesh_run_active 1\n").await;
    until_exposed(&page, "run=\"<b>n</b>\"").await;
    stage.watch(started.run_id).await;
    for path in plain {
        check(path, &page.get(path).await);
    }
    for part in ["", "/timeline", "/card", "/report", "/pictures"] {
        let path = format!("/api/v1/runs/{{run}}{part}");
        let answer = page.get(&path.replace("{run}", "last")).await;
        check(&path, &answer);
    }
    let html = page.get("/api/v1/runs/last/report.html").await;
    assert_eq!(html.status, 200);
    let name = html.header("content-disposition").unwrap();
    assert!(name.starts_with("attachment"), "{name}");
    // Names are data in the file, never markup.
    assert!(!html.body.contains("<b>n</b>") && html.body.contains("\\u003cb>n\\u003c/b>"));
    let listed = page.get("/api/v1/runs").await.json();
    assert_eq!(listed["runs"][0]["state"], "done");
    assert_eq!(
        page.get("/api/v1/runs?limit=0").await.json()["runs"],
        json!([])
    );
}

/// The framework's own refusals have the same form as all others.
#[tokio::test]
async fn every_refusal_is_one_json_document() {
    let stage = Stage::new().await;
    let page = Page::of(&stage);
    for (path, status, word) in [
        ("/api/v1/runs?limitt=1", 400, "limitt"),
        ("/api/v1/runs?limit=many", 400, "limit"),
        ("/api/v1/runs?limit=-1", 400, "limit"),
        ("/api/v1/events?after=x", 400, "after"),
        ("/api/v1/runs/1/timeline?points=1&point=2", 400, "point"),
        ("/api/v1/compare?a=1&b=2&c=3", 400, "c"),
        ("/api/v1/runs/%ff", 400, "UTF-8"),
        ("/api/v1/runs/77", 404, "77"),
        ("/api/v1/runs/77/report", 404, "77"),
        ("/api/v1/runs/77/report.html", 404, "77"),
        ("/api/v1/runs/77/timeline", 404, "77"),
        ("/api/v2", 404, "openapi"),
        ("/assets/none.js", 404, "openapi"),
        ("/api/v1/query", 405, "GET"),
    ] {
        let answer = page.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let document = answer.json();
        let error = document["error"].as_str().unwrap();
        assert!(error.contains(word), "{path}: {error}");
        assert_eq!(document.as_object().unwrap().len(), 1, "{path}");
    }
    for (path, body, status) in [
        ("/api/v1/runs", String::from("{}"), 405),
        ("/api/v1/query", "x".repeat((1 << 20) + 1), 413),
        ("/api/v1/query", String::from("[]"), 422),
    ] {
        let answer = page.post(path, &body, "").await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.json()["error"].is_string(), "{path}");
    }
}

/// Polls the metrics until they contain this text; they are computed once per second.
async fn until_exposed(page: &Page, text: &str) {
    timeout(LIMIT, async {
        while !page.get("/metrics").await.body.contains(text) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{text:?} is exposed"));
}

/// Reads a stream until it has contained all of these topics.
async fn until_told(page: &Page, topics: &[&str]) -> TcpStream {
    let mut stream = TcpStream::connect(&page.host).await.unwrap();
    let request = format!(
        "GET /api/v1/stream HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        page.host, page.token
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    let mut bytes = vec![0; 65536];
    timeout(LIMIT, async {
        while !topics
            .iter()
            .all(|topic| text.contains(&format!("event: {topic}\ndata: ")))
        {
            let count = stream.read(&mut bytes).await.unwrap();
            assert!(count > 0, "the stream ended: {text}");
            text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    })
    .await
    .unwrap();
    stream
}

#[tokio::test]
async fn a_viewer_is_told_everything_once_and_then_what_changes() {
    let stage = Stage::new().await;
    let page = Page::of(&stage);
    let all = [
        "health", "run", "agents", "daemons", "hosts", "events", "runs",
    ];
    let mut first = until_told(&page, &all).await;
    let _second = until_told(&page, &all).await;
    until_exposed(&page, "benchmesh_viewers 2\n").await;
    let _agent = stage.agent("late", Script::default()).await;
    let mut text = String::new();
    let mut bytes = vec![0; 65536];
    timeout(LIMIT, async {
        while !text.contains("\"name\":\"late\"") {
            let count = first.read(&mut bytes).await.unwrap();
            text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    })
    .await
    .expect("the new agent is told of");
    assert!(!text.contains("event: runs"), "{text}");
}
