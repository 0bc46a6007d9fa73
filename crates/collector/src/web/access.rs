//! Access to the page: for clients with the token that use an allowed host name.
//!
//! The token comes in the address once and is then kept in a cookie that scripts cannot read and other sites cannot
//! send, or in an `Authorization: Bearer` header. It is required on loopback too: every user of the machine reaches the
//! port. The `Host` header must be an address, `localhost` or an allowed name, so that a foreign name that resolves to
//! this machine (DNS rebinding) gives no access.

use super::{App, assets, error::HttpRefusal, listener::Client};
use axum::{
    body::Bytes,
    extract::{ConnectInfo, Request, State},
    http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use benchmesh_trust::private_file;
use rustix::process::geteuid;
use std::{
    fs::File,
    io::{self, Read},
    net::IpAddr,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};
use subtle::ConstantTimeEq;
use uuid::Uuid;

/// Shorter tokens could be guessed.
const MIN_CHARACTERS: usize = 32;
const MAX_CHARACTERS: usize = 256;

/// Time limit for a request without the token.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Content security policy of our pages: nothing from other origins, and no inline script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// The secret that gives access to the page.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("cannot use the token file {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("other users can read {}; make it private: chmod 600 {}", path.display(), path.display())]
    ReadByOthers { path: PathBuf },
    #[error(
        "the token file {} belongs to user id {user}, who knows the token: remove the file, and the collector creates \
        a new one",
        path.display()
    )]
    OfAnother { path: PathBuf, user: u32 },
    #[error(
        "{} contains no valid token: a token has {MIN_CHARACTERS} to {MAX_CHARACTERS} letters, digits, - or _ on one \
        line; remove the file, and the collector creates a new one",
        path.display()
    )]
    NotAToken { path: PathBuf },
}

impl Token {
    /// 244 random bits.
    #[expect(clippy::new_without_default, reason = "each one is different")]
    pub fn new() -> Self {
        Self(format!(
            "{}{}",
            Uuid::new_v4().simple(),
            Uuid::new_v4().simple()
        ))
    }

    /// The token in a file that only its owner can read; creates one if it is missing.
    pub fn kept_in(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::File {
            path: path.to_owned(),
            source,
        };
        match private_file::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let token = Self::new();
                // Complete from its first instant: a collector that is killed meanwhile leaves no empty file.
                private_file::create(path, format!("{}\n", token.0).as_bytes()).map_err(failed)?;
                Ok(token)
            }
            opened => Self::read(path, opened.map_err(failed)?),
        }
    }

    fn read(path: &Path, mut file: File) -> Result<Self, TokenError> {
        let failed = |source| TokenError::File {
            path: path.to_owned(),
            source,
        };
        let found = file.metadata().map_err(failed)?;
        if found.uid() != geteuid().as_raw() {
            return Err(TokenError::OfAnother {
                path: path.to_owned(),
                user: found.uid(),
            });
        }
        if found.permissions().mode() & 0o077 != 0 {
            return Err(TokenError::ReadByOthers {
                path: path.to_owned(),
            });
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let text = text.trim();
        let is_token = (MIN_CHARACTERS..=MAX_CHARACTERS).contains(&text.len())
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if !is_token {
            return Err(TokenError::NotAToken {
                path: path.to_owned(),
            });
        }
        Ok(Self(text.to_owned()))
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

/// The rules for one collector.
#[derive(Debug)]
pub struct Access {
    token: Token,
    /// A browser sends one host's cookies to all of its ports, so two collectors must not share a cookie name.
    cookie: String,
    names: Vec<String>,
}

impl Access {
    pub fn new(token: Token, port: u16, names: Vec<String>) -> Self {
        Self {
            token,
            cookie: format!("benchmesh-{port}"),
            names,
        }
    }

    pub fn token(&self) -> &Token {
        &self.token
    }

    /// The token in a request's headers.
    fn shown(&self, headers: &HeaderMap) -> ShownToken {
        let bearer = headers
            .get_all(header::AUTHORIZATION)
            .iter()
            .map(|value| value.to_str().ok().and_then(|value| value.split_once(' ')))
            .map(|value| {
                value.is_some_and(|(scheme, token)| {
                    scheme.eq_ignore_ascii_case("bearer") && self.token.is(token.trim())
                })
            });
        let cookies = headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(name, _)| *name == self.cookie)
            .map(|(_, value)| self.token.is(value));
        bearer
            .chain(cookies)
            .fold(ShownToken::None, ShownToken::and)
    }

    /// Whether a `Host` header names this collector.
    fn is_own_name(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map_or(rest, |(address, _)| address),
            None => host.split_once(':').map_or(host, |(name, _)| name),
        };
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    fn set_cookie(&self) -> HeaderValue {
        let cookie = format!(
            "{}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000",
            self.cookie,
            self.token.text()
        );
        // Both are letters, digits, - and _.
        HeaderValue::from_str(&cookie).unwrap_or(HeaderValue::from_static(""))
    }

    /// Redirects to the page without the token in its address, because the address would stay in the history.
    fn accept(&self) -> Response {
        let to = HeaderValue::from_static("/");
        let headers = [
            (header::LOCATION, to),
            (header::SET_COOKIE, self.set_cookie()),
        ];
        (StatusCode::SEE_OTHER, headers).into_response()
    }
}

/// The token of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShownToken {
    None,
    Another,
    Token,
}

impl ShownToken {
    /// Adds another token, which matches ours or not.
    fn and(self, is_ours: bool) -> Self {
        match (self, is_ours) {
            (Self::Token, _) | (_, true) => Self::Token,
            _ => Self::Another,
        }
    }
}

/// The address of a request, for the log.
fn client(extensions: &Extensions) -> Option<IpAddr> {
    let client = extensions.get::<ConnectInfo<Client>>();
    client.map(|ConnectInfo(Client(address))| *address)
}

const WRONG_TOKEN: &str = "a client requested the page with a wrong token";

/// Paths served without the token: the login form and its style.
fn is_open(path: &str) -> bool {
    matches!(path, "/login" | "/assets/page.css" | "/favicon.ico")
}

/// Checks each request, and sets the security headers of each answer.
pub async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut response = checked(&app, request, next).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

async fn checked(app: &App, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let from = client(request.extensions());
    let refused = |problem| app.refusals.log(from, problem);
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .or_else(|| request.uri().host());
    if !host.is_some_and(|host| app.access.is_own_name(host)) {
        refused("a client requested the page under another machine's name");
        return HttpRefusal::new(
            StatusCode::MISDIRECTED_REQUEST,
            "the Host header names another machine; use the collector's address, or allow the name with --http-name",
        )
        .into_response();
    }
    if request.method() != Method::GET
        && request.method() != Method::HEAD
        && is_from_elsewhere(headers)
    {
        refused("another site's page sent a request to the live page");
        return HttpRefusal::new(
            StatusCode::FORBIDDEN,
            "another site's page sent this request",
        )
        .into_response();
    }
    let shown = app.access.shown(headers);
    if shown == ShownToken::Token {
        return next.run(request).await;
    }
    let path = request.uri().path();
    if is_open(path) {
        // Limit the time for the body of a login, which its sender may send slowly.
        return match tokio::time::timeout(OPEN_TIMEOUT, next.run(request)).await {
            Ok(response) => response,
            Err(_) => HttpRefusal::new(
                StatusCode::REQUEST_TIMEOUT,
                "the request did not arrive in time",
            )
            .into_response(),
        };
    }
    let given = request.uri().query().and_then(|query| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix("token="))
    });
    match given {
        Some(token) if app.access.token.is(token) => app.access.accept(),
        Some(_) => {
            refused(WRONG_TOKEN);
            ask(headers, "This token is not the collector's.").await
        }
        None => {
            refused(match shown {
                ShownToken::None => "a client requested the page without a token",
                _ => WRONG_TOKEN,
            });
            ask(headers, "").await
        }
    }
}

/// Judged by headers that browsers set; other programs do not send them.
fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let site = HeaderName::from_static("sec-fetch-site");
    if text(&site).is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return true;
    }
    let origin = text(&header::ORIGIN).and_then(|origin| origin.split_once("://"));
    match origin {
        Some((_, origin)) => text(&header::HOST) != Some(origin),
        None => text(&header::ORIGIN).is_some(),
    }
}

/// Answers with the form for a browser, or the reason for a program.
async fn ask(headers: &HeaderMap, problem: &str) -> Response {
    let wants_page = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/html"));
    if wants_page {
        return assets::login(StatusCode::UNAUTHORIZED, problem);
    }
    let refusal = HttpRefusal::new(
        StatusCode::UNAUTHORIZED,
        "the token is missing or wrong; the collector prints it when it starts: send it as `Authorization: Bearer TOKEN`, or open the address that it prints",
    );
    let header = [(header::WWW_AUTHENTICATE, "Bearer realm=\"benchmesh\"")];
    (header, refusal).into_response()
}

pub async fn login_page() -> Response {
    assets::login(StatusCode::OK, "")
}

/// The form's answer: `token=...`.
pub async fn login(State(app): State<App>, extensions: Extensions, body: Bytes) -> Response {
    let text = String::from_utf8_lossy(&body);
    let token = text
        .split('&')
        .find_map(|pair| pair.strip_prefix("token="))
        .unwrap_or_default()
        .trim_matches('+');
    if app.access.token.is(token) {
        app.access.accept()
    } else {
        app.refusals.log(client(&extensions), WRONG_TOKEN);
        assets::login(
            StatusCode::UNAUTHORIZED,
            "This token is not the collector's.",
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    fn access() -> Access {
        Access::new(Token::new(), 4751, vec!["bench.example".to_owned()])
    }

    #[test]
    fn only_own_names_are_served() {
        let access = access();
        for (host, own) in [
            ("127.0.0.1:4751", true),
            ("127.0.0.1", true),
            ("[::1]:4751", true),
            ("10.1.2.3:80", true),
            ("localhost:4751", true),
            ("LOCALHOST", true),
            ("bench.example:4751", true),
            ("Bench.Example", true),
            ("evil.example:4751", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("bench.example.evil", false),
            ("", false),
            ("[evil", false),
        ] {
            assert_eq!(access.is_own_name(host), own, "{host}");
        }
    }

    #[test]
    fn the_token_is_taken_from_the_cookie_of_this_port_and_from_the_header() {
        let access = access();
        let token = access.token().text().to_owned();
        let check = |name: HeaderName, value: String, expected: ShownToken| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_str(&value).unwrap());
            assert_eq!(access.shown(&headers), expected, "{value}");
        };
        use ShownToken::{Another, None, Token};
        check(header::AUTHORIZATION, format!("Bearer {token}"), Token);
        check(header::AUTHORIZATION, format!("bearer {token}"), Token);
        check(header::AUTHORIZATION, format!("Basic {token}"), Another);
        check(header::AUTHORIZATION, token.clone(), Another);
        check(
            header::COOKIE,
            format!("a=b; benchmesh-4751={token}"),
            Token,
        );
        check(header::COOKIE, format!("benchmesh-4752={token}"), None);
        check(header::COOKIE, format!("benchmesh-4751={token}x"), Another);
        check(header::COOKIE, "benchmesh-4751=".to_owned(), Another);
        let both = format!("benchmesh-4751=old; benchmesh-4751={token}");
        check(header::COOKIE, both, Token);
        assert_eq!(access.shown(&HeaderMap::new()), None);
    }

    #[test]
    fn requests_of_other_sites_are_told_apart() {
        let check = |pairs: &[(&'static str, &'static str)], elsewhere: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:4751"));
            for (name, value) in pairs {
                headers.insert(
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                );
            }
            assert_eq!(is_from_elsewhere(&headers), elsewhere, "{pairs:?}");
        };
        check(&[], false);
        check(&[("sec-fetch-site", "same-origin")], false);
        check(&[("sec-fetch-site", "cross-site")], true);
        check(&[("sec-fetch-site", "same-site")], true);
        check(&[("origin", "http://127.0.0.1:4751")], false);
        check(&[("origin", "http://127.0.0.1:80")], true);
        check(&[("origin", "null")], true);
    }

    #[test]
    fn a_token_file_is_made_for_its_owner_alone_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let made = Token::kept_in(&path).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(Token::kept_in(&path).unwrap().text(), made.text());
        let names = fs::read_dir(directory.path()).unwrap();
        assert_eq!(names.count(), 1);
        assert_ne!(Token::new().text(), Token::new().text());
        fs::write(&path, "short\n").unwrap();
        assert!(matches!(
            Token::kept_in(&path),
            Err(TokenError::NotAToken { .. })
        ));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(
            Token::kept_in(&path),
            Err(TokenError::ReadByOthers { .. })
        ));
        // A collector that runs as root refuses a token file of another user, who would know the token.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
            assert!(matches!(
                Token::kept_in(&path),
                Err(TokenError::OfAnother { user: 12345, .. })
            ));
        }
        assert!(matches!(
            Token::kept_in(&directory.path().join("no/token")),
            Err(TokenError::File { .. })
        ));
    }
}
