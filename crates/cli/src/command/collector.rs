//! `benchmesh collector`, and the commands that control who may join it.

use crate::args::ListFormat;
use crate::args::daemons::{
    ArchiveArguments, CollectorAction, CollectorArguments, JoinArguments, RevokeArguments,
    TokenAction, TokenArguments, TokenCancelArguments, TokenListArguments, TokenRole,
};
use crate::client::CallError;
use crate::client::trust::{self, TokenRequest};
use crate::config_file::Reloads;
use crate::daemon::{end_with_parent, until_signal};
use crate::failure::{self, Outcome, wrong_usage};
use crate::input_file::{self, Accept};
use crate::{logging, output, terminal};
use anyhow::Context;
use benchmesh_answers::report::{Table, figures};
use benchmesh_archive::postgres::{Server, Site, UrlOrigin};
use benchmesh_collector::archive::{ArchiveConfig, Pace};
use benchmesh_collector::trust::{CERTIFICATE_LIFETIME, Security};
use benchmesh_collector::web::HttpConfig;
use benchmesh_collector::{Collector, CollectorConfig};
use benchmesh_proto::v1;
use benchmesh_store::retention::Retention;
use benchmesh_trust::{JoinToken, Replacement, Role, credentials};
use std::convert::Infallible;
use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub async fn collector(arguments: CollectorArguments, insecure: bool) -> anyhow::Result<Outcome> {
    if arguments.end_with_parent {
        end_with_parent()?;
    }
    until_signal(|cancel, notifier| async move {
        let hangups = report_hangups()?;
        let what = format!(
            "start the collector on {} with {}",
            arguments.listen,
            arguments.db.display()
        );
        let config = CollectorConfig {
            listen: arguments.listen,
            db: arguments.db,
            security: security(insecure, arguments.tls_dir, arguments.certificate_lifetime)?,
            http: HttpConfig {
                listen: arguments.http.unwrap_or_default(),
                token_file: arguments.http_token_file,
                names: arguments.http_names,
                insecure: arguments.http_insecure,
            },
            retention: Retention {
                keep_seconds: arguments.retention.keep_seconds,
                keep_10s: arguments.retention.keep_10s,
                max_size: arguments.retention.max_size,
                keep_tags: arguments.retention.keep_tags,
                ..Retention::default()
            },
            on_alarm: arguments.on_alarm,
            archive: archive(arguments.archive)?,
            clock_ppm: arguments.clock_ppm,
            newcomer_timeout: arguments.newcomer_timeout,
        };
        let collector = Collector::bind(config).await.context(what)?;
        if let Some(url) = collector.page_url() {
            if let Some(file) = &arguments.http_url_file {
                write_whole(file, &url)
                    .with_context(|| format!("write the page's address to {}", file.display()))?;
            }
            output::print_notice(&format!("live page: {}", shown(&url)));
        }
        if let Some(file) = &arguments.address_file {
            write_whole(file, &collector.address().to_string())
                .with_context(|| format!("write the collector's address to {}", file.display()))?;
        }
        notifier.ready(&format!("serving on {}", collector.address()));
        let serve = collector.serve(cancel);
        tokio::pin!(serve);
        tokio::select! {
            served = &mut serve => served.context("serve agents and commands"),
            never = hangups => match never {},
        }
    })
    .await
}

/// The page's address for standard error. Other users can read the journal, so the token is left out there.
fn shown(url: &str) -> String {
    match url.split_once('?') {
        Some((address, _)) if logging::is_journal() => {
            format!("{address} (with its token: --http-url-file)")
        }
        _ => url.to_owned(),
    }
}

/// Logs on SIGHUP which keys of the configuration file have changed. None takes effect without a restart: listeners,
/// database and CA are opened once. Without a file, SIGHUP ends the process as usual.
fn report_hangups() -> anyhow::Result<impl Future<Output = Infallible>> {
    let mut reloads = Reloads::listen()?;
    Ok(async move {
        loop {
            match reloads.next().await {
                (file, Ok(change)) => tracing::warn!(
                    file,
                    keys = change.keys.join(", "),
                    "the configuration has changed; restart the collector to apply it"
                ),
                (file, Err(error)) => tracing::error!(
                    file,
                    error = failure::chain(&error),
                    "the configuration is wrong; the collector would not start with it"
                ),
            }
        }
    })
}

fn archive(arguments: ArchiveArguments) -> anyhow::Result<Option<ArchiveConfig>> {
    let Some(url) = arguments.archive else {
        return Ok(None);
    };
    let password_file = arguments.archive_password_file.as_deref();
    let server = Server::parse(&url, UrlOrigin::Collector, password_file)
        .map_err(|error| wrong_usage(format!("--archive: {error}")))?;
    let site = match arguments.archive_site {
        Some(site) => Site::Named(site),
        None => Site::Default(host_name()?),
    };
    Ok(Some(ArchiveConfig {
        server,
        site,
        pace: Pace::default(),
    }))
}

fn security(
    insecure: bool,
    directory: Option<PathBuf>,
    lifetime: Option<Duration>,
) -> anyhow::Result<Security> {
    if insecure {
        return Ok(Security::Insecure);
    }
    let credentials = credentials::directory().context(
        "find the directory for this user's credentials; set BENCHMESH_CREDENTIALS to one",
    )?;
    Ok(Security::Tls {
        directory,
        credentials: Some(credentials),
        lifetime: lifetime.unwrap_or(CERTIFICATE_LIFETIME),
    })
}

/// `benchmesh collector token` and `revoke`.
pub async fn action(action: CollectorAction) -> anyhow::Result<Outcome> {
    match action {
        CollectorAction::Token(arguments) => token(arguments).await,
        CollectorAction::Revoke(arguments) => revoke(arguments).await,
    }
}

async fn token(arguments: TokenArguments) -> anyhow::Result<Outcome> {
    match arguments.action {
        Some(TokenAction::List(arguments)) => return list_tokens(arguments).await,
        Some(TokenAction::Cancel(arguments)) => return cancel_token(arguments).await,
        None => {}
    }
    let wanted = TokenRequest {
        role: match arguments.role {
            TokenRole::Agent => Role::Agent,
            TokenRole::Operator => Role::Operator,
        },
        uses: arguments.uses,
        ttl: arguments.ttl,
        replacement: match arguments.replace {
            None => Replacement::Nobody,
            Some(None) => Replacement::HolderOfName,
            Some(Some(name)) => Replacement::Named(name),
        },
    };
    let token = trust::create_token(&arguments.collector.collector, wanted)
        .await
        .map_err(CallError::into_error)?;
    output::result(&format!("{token}\n"))?;
    let command = match arguments.role {
        TokenRole::Agent => "benchmesh agent --collector HOST:PORT --join-file FILE",
        TokenRole::Operator => "benchmesh join --token-file FILE --collector HOST:PORT",
    };
    output::print_notice(&format!(
        "save it on the other machine in a file that only its user can read, then run: {command}"
    ));
    Ok(Outcome::Done)
}

async fn list_tokens(arguments: TokenListArguments) -> anyhow::Result<Outcome> {
    let tokens = trust::list_tokens(&arguments.collector.collector)
        .await
        .map_err(CallError::into_error)?;
    if arguments.format == ListFormat::Json {
        let tokens: Vec<_> = tokens
            .iter()
            .map(|token| {
                serde_json::json!({
                    "id": token.id,
                    "role": token.role,
                    "uses_left": token.uses_left,
                    "expires_s": token.expires_s,
                    "replace": token.replace,
                    "replaces": token.replaces,
                })
            })
            .collect();
        output::document(&serde_json::json!({ "tokens": tokens }))?;
        return Ok(Outcome::Done);
    }
    if tokens.is_empty() {
        output::print_notice("nobody can join: there is no token, or all are used up or expired");
        return Ok(Outcome::Done);
    }
    let cells = |cell: fn(&v1::JoinToken) -> String| tokens.iter().map(cell).collect::<Vec<_>>();
    let table = Table::default()
        .text("token", cells(|token| token.id.clone()))
        .text("role", cells(|token| token.role.clone()))
        .figures("uses left", cells(|token| token.uses_left.to_string()))
        .text(
            "expires",
            cells(|token| {
                let expires_s = i64::try_from(token.expires_s).unwrap_or(i64::MAX);
                figures::instant(expires_s.saturating_mul(1_000_000))
            }),
        )
        .text(
            "replaces",
            cells(|token| match (token.replace, token.replaces.as_str()) {
                (false, _) => figures::NONE.to_owned(),
                (true, "") => "the holder of the name".to_owned(),
                (true, name) => name.to_owned(),
            }),
        );
    output::result(&terminal::shown(&table, "json"))?;
    Ok(Outcome::Done)
}

async fn cancel_token(arguments: TokenCancelArguments) -> anyhow::Result<Outcome> {
    let id = match (arguments.id, &arguments.token_file) {
        (Some(id), _) => id,
        (None, Some(file)) => token_in(file)?.id(),
        (None, None) => return Err(wrong_usage("give the token's id, or --token-file FILE")),
    };
    let token = trust::cancel_token(&arguments.collector.collector, &id)
        .await
        .map_err(CallError::into_error)?;
    output::print_notice(&format!(
        "token {} is cancelled; it had {} of the role {} left",
        token.id,
        figures::plural(
            usize::try_from(token.uses_left).unwrap_or(usize::MAX),
            "use"
        ),
        token.role
    ));
    Ok(Outcome::Done)
}

async fn revoke(arguments: RevokeArguments) -> anyhow::Result<Outcome> {
    let reply = trust::revoke(&arguments.collector.collector, &arguments.name)
        .await
        .map_err(CallError::into_error)?;
    let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    output::print_notice(&format!(
        "revoked {} of {}",
        figures::plural(count(reply.revoked), "certificate"),
        arguments.name
    ));
    for token in &reply.tokens {
        output::print_notice(&format!(
            "join token {}, with which it joined, is cancelled; it had {} left",
            token.id,
            figures::plural(count(token.uses_left), "use")
        ));
    }
    Ok(Outcome::Done)
}

/// `benchmesh join`.
pub async fn join(arguments: JoinArguments) -> anyhow::Result<Outcome> {
    let name = match arguments.name {
        Some(name) => name,
        None => own_name()?,
    };
    let token = match (arguments.token, &arguments.token_file) {
        (Some(token), _) => token,
        (None, Some(file)) => token_in(file)?,
        (None, None) => return Err(wrong_usage("give a token, or --token-file FILE")),
    };
    let file = trust::join(&arguments.collector.collector, &name, &token)
        .await
        .map_err(CallError::into_error)?;
    output::print_notice(&format!(
        "joined the collector at {} as the operator {name}; the credentials are in {}",
        arguments.collector.collector,
        file.display()
    ));
    Ok(Outcome::Done)
}

/// Maximum size of a token file: a token has a hundred bytes.
pub(super) const MAX_TOKEN_BYTES: u64 = 4096;

/// The token in a file, or on standard input for `-`.
fn token_in(file: &Path) -> anyhow::Result<JoinToken> {
    let place = match file == Path::new("-") {
        true => "standard input".to_owned(),
        false => file.display().to_string(),
    };
    let read = input_file::read_text(file, MAX_TOKEN_BYTES, Accept::AnyFile);
    let problem = match read.map(|text| text.parse::<JoinToken>()) {
        Ok(Ok(token)) => return Ok(token),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    Err(wrong_usage(format!("the join token in {place}: {problem}")))
}

fn host_name() -> anyhow::Result<String> {
    let system = rustix::system::uname();
    let host = system.nodename().to_str().context("find the host's name")?;
    Ok(host.to_owned())
}

/// USER@HOST.
fn own_name() -> anyhow::Result<String> {
    let host = host_name()?;
    let user = std::env::var("USER").unwrap_or_else(|_| {
        let uid = rustix::process::geteuid().as_raw();
        format!("uid{uid}")
    });
    Ok(format!("{user}@{host}"))
}

/// Writes atomically: a process that waits for the file finds a complete address in it. Only its owner can read it.
fn write_whole(file: &Path, address: &str) -> std::io::Result<()> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut draft = tempfile::NamedTempFile::new_in(directory)?;
    writeln!(draft, "{address}")?;
    draft.persist(file)?;
    Ok(())
}
