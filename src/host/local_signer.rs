//! Signs a login with a private key that is here, where russh signs for an agent only: with the
//! certificate of an RSA key, whose hash russh does not let be chosen otherwise.

use russh::{
    AgentAuthError, Signer,
    keys::{
        Error as KeysError, HashAlg, PrivateKey, agent::AgentIdentity, signature::Signer as _,
        ssh_encoding::Encode, ssh_key, ssh_key::private::KeypairData,
    },
};

/// The key.
pub(super) struct LocalSigner<'a>(pub(super) &'a PrivateKey);

impl LocalSigner<'_> {
    fn signed(&self, hash: Option<HashAlg>, mut data: Vec<u8>) -> Result<Vec<u8>, KeysError> {
        let signature = match (self.0.key_data(), hash) {
            (KeypairData::Rsa(pair), Some(_)) => (pair, hash).try_sign(&data),
            (pair, _) => pair.try_sign(&data),
        };
        let signature = signature.map_err(ssh_key::Error::from)?;
        let mut blob = Vec::new();
        signature.encode(&mut blob)?;
        blob.encode(&mut data)?;
        Ok(data)
    }
}

impl Signer for LocalSigner<'_> {
    type Error = AgentAuthError;

    async fn auth_sign(
        &mut self,
        _: &AgentIdentity,
        hash: Option<HashAlg>,
        to_sign: Vec<u8>,
    ) -> Result<Vec<u8>, AgentAuthError> {
        Ok(self.signed(hash, to_sign)?)
    }
}
