//! The CA: created once, stored in one private file; signs the certificates.

use benchmesh_trust::{COLLECTOR_NAME, Fingerprint, Role, now_s, private_file};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};
use serde::{Deserialize, Serialize};
use std::{fmt, io, path::Path, time::Duration};
use time::OffsetDateTime;

const CA_LIFETIME: Duration = Duration::from_secs(20 * 365 * 24 * 3600);
/// Certificates are backdated by this much, because clocks differ.
const BACKDATED: Duration = Duration::from_secs(24 * 3600);

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct CaFile {
    /// Part of the CA's name.
    id: String,
    certificate: String,
    key: String,
}

pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pub certificate: CertificateDer<'static>,
    pub pem: String,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ca({})", self.fingerprint())
    }
}

/// A newly issued certificate.
#[derive(Debug)]
pub struct Issued {
    pub certificate: CertificateDer<'static>,
    pub pem: String,
    pub expires_s: u64,
}

/// A client's public key: a point of P-256.
struct ClientKey<'a>(&'a [u8]);

impl PublicKeyData for ClientKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl Ca {
    /// Loads the CA from the file, creating it if absent.
    pub fn kept_in(file: &Path) -> io::Result<Self> {
        let kept = match private_file::read(file)? {
            Some(text) => serde_json::from_str(&text).map_err(io::Error::other)?,
            None => {
                let kept = make()?;
                let text = serde_json::to_string_pretty(&kept).map_err(io::Error::other)?;
                private_file::write(file, text.as_bytes())?;
                kept
            }
        };
        let key = KeyPair::from_pem(&kept.key).map_err(io::Error::other)?;
        let certificate = CertificateDer::from_pem_slice(kept.certificate.as_bytes())
            .map_err(io::Error::other)?;
        Ok(Self {
            issuer: Issuer::new(ca_params(&kept.id), key),
            certificate,
            pem: kept.certificate,
        })
    }

    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// Issues a client certificate. The collector identifies the holder by the fingerprint; the subject is for people.
    pub fn issue(
        &self,
        role: Role,
        name: &str,
        public_key: &[u8],
        lifetime: Duration,
    ) -> io::Result<Issued> {
        let mut params = params(&format!("benchmesh {role} {name}"), lifetime);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let expires_s = now_s().saturating_add(lifetime.as_secs());
        let certificate = params
            .signed_by(&ClientKey(public_key), &self.issuer)
            .map_err(io::Error::other)?;
        Ok(Issued {
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            expires_s,
        })
    }

    /// Issues the collector's own certificate, with its key.
    pub fn issue_own(
        &self,
        lifetime: Duration,
    ) -> io::Result<(CertificateDer<'static>, PrivateKeyDer<'static>)> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(io::Error::other)?;
        let mut params = params("benchmesh collector", lifetime);
        let name = COLLECTOR_NAME.try_into().map_err(io::Error::other)?;
        params.subject_alt_names = vec![rcgen::SanType::DnsName(name)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(io::Error::other)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Ok((certificate.der().clone(), key.into()))
    }
}

fn make() -> io::Result<CaFile> {
    let id = uuid::Uuid::new_v4().simple().to_string();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(io::Error::other)?;
    let certificate = ca_params(&id).self_signed(&key).map_err(io::Error::other)?;
    Ok(CaFile {
        id,
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn ca_params(id: &str) -> CertificateParams {
    let mut params = params(&format!("benchmesh CA {id}"), CA_LIFETIME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn params(common_name: &str, lifetime: Duration) -> CertificateParams {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    let now = now_s();
    params.not_before = date(now.saturating_sub(BACKDATED.as_secs()));
    params.not_after = date(now.saturating_add(lifetime.as_secs()));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params
}

fn date(seconds: u64) -> OffsetDateTime {
    i64::try_from(seconds)
        .ok()
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
