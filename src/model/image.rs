//! What an image's reference says of its version. Pure.

/// `major.minor.patch` of a tag; builds of one release are equal.
pub type ImageVersion = (u32, u32, u32);

/// The version that an image's tag names; `None` where it is none.
pub fn image_version(image: &str) -> Option<ImageVersion> {
    let image = image.split('@').next()?;
    let (_, tag) = image.rsplit_once(':')?;
    version(tag)
}

/// The numbers of `3.6.7`, of `v1.34.4`, or of what begins like that.
pub fn version(text: &str) -> Option<ImageVersion> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let number = |text: &str| text.parse::<u32>().ok();
    let mut parts = text.splitn(3, '.');
    let (major, minor) = (number(parts.next()?)?, number(parts.next()?)?);
    let patch: String = parts
        .next()?
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    Some((major, minor, number(&patch)?))
}

#[cfg(test)]
mod tests {
    use super::{image_version, version};

    #[test]
    fn a_version_is_the_tags_numbers() {
        assert_eq!(image_version("a/b:v1.34.4"), Some((1, 34, 4)));
        assert_eq!(
            image_version("reg:5000/a/b:v3.6.7-build20260101"),
            Some((3, 6, 7))
        );
        assert_eq!(
            image_version("a/b:v1.34.4-rke2r1@sha256:00"),
            Some((1, 34, 4))
        );
        assert_eq!(image_version("reg:5000/a/b"), None);
        assert_eq!(image_version("a/b:latest"), None);
        assert_eq!(image_version("a/b:v1.34"), None);
        assert_eq!(version("3.5.21"), Some((3, 5, 21)));
    }
}
