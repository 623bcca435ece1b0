//! Predictions drawn on their pictures, as PNG files of a folder.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_artifact::{Artifact, files};
use planish_data::chunks::ReadPicture;
use planish_pictures::{Colour, Picture, colour_of, gray_png, gray_png_of_bytes};

use super::depth::DepthMap;
use super::head::Head;
use super::objects::Object;
use super::outcome::Outcome;
use super::segments::ClassMap;
use super::{PredictOptions, Unfit};

/// The folder that drawings go to.
pub(super) struct Drawings {
    folder: PathBuf,
}

/// What the names of files end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The picture with what is drawn on it.
    Drawn,
    /// Its classes, a number a pixel.
    Classes,
    /// Its objects, a number a pixel.
    Objects,
    /// Its depths, a number of 16 bits a pixel.
    Depths,
}

impl Drawings {
    /// A folder, which is made where it is not there.
    ///
    /// # Errors
    /// When it cannot be made, or is in that of the data: drawings would come among pictures, or in place of one.
    pub(super) fn new(folder: &Path, data: &Path) -> Result<Self> {
        let of_data = if data.is_dir() { Some(data) } else { data.parent() };
        // A file without a folder in front is in the current one.
        let of_data = of_data.map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path });
        let real = |path: &Path| path.canonicalize().ok();
        if let Some((place, own)) = nearest(folder).zip(of_data.and_then(real))
            && (data.is_dir() && place.starts_with(&own) || folder.is_dir() && place == own)
        {
            bail!(
                "--draw {} is in the folder of the pictures, {}, which would have the drawings too; name another folder",
                folder.display(),
                own.display()
            );
        }
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Draws what was predicted of a picture.
    ///
    /// # Errors
    /// When the picture cannot be read again, or a file cannot be written.
    pub(super) fn draw(&self, of: &ReadPicture, outcome: &Outcome) -> Result<()> {
        match outcome {
            Outcome::Objects { objects } => self.objects(of, objects),
            Outcome::Segments { map: Some(map), .. } => {
                self.segments(of, map, What::Classes, |class| Some(colour_of(class)))
            }
            // Pixels of no object have no colour.
            Outcome::Instances { map: Some(map), .. } => {
                self.segments(of, map, What::Objects, |id| id.checked_sub(1).map(colour_of))
            }
            Outcome::Depth { map: Some(map), .. } => self.depths(of, map),
            _ => Ok(()),
        }
    }

    /// Depths as gray of 8 bits, as the pipeline of the transformers library draws them, and of 16 bits: from black, the smallest
    /// depth, to white, the largest one.
    fn depths(&self, of: &ReadPicture, map: &DepthMap) -> Result<()> {
        let [height, width] = map.size;
        let gray: Vec<u8> = map.levels(f32::from(u8::MAX)).map(|level| level as u8).collect();
        self.write(of, What::Drawn, gray_png_of_bytes(&gray, [width, height]))?;
        let fine: Vec<u16> = map.levels(f32::from(u16::MAX)).map(|level| level as u16).collect();
        self.write(of, What::Depths, gray_png(&fine, [width, height]))
    }

    /// The boxes of objects with labels and scores, those of the best scores above others.
    fn objects(&self, of: &ReadPicture, objects: &[Object]) -> Result<()> {
        let mut picture = opened(of)?;
        let mut order: Vec<&Object> = objects.iter().collect();
        order.sort_by(|a, b| a.score.total_cmp(&b.score));
        for object in order {
            let caption = format!("{} {:.2}", object.label, object.score);
            picture.frame(object.sides.in_order(), &caption, colour_of(object.class));
        }
        self.write(of, What::Drawn, picture.to_png())
    }

    /// Colours of classes or objects over the picture, and their numbers: of 8 bits where these have all of them.
    fn segments(
        &self,
        of: &ReadPicture,
        map: &ClassMap,
        what: What,
        colour: fn(usize) -> Option<Colour>,
    ) -> Result<()> {
        let mut picture = opened(of)?;
        picture.tint(map.classes.iter().map(|number| colour(usize::from(*number))));
        self.write(of, What::Drawn, picture.to_png())?;
        let [height, width] = map.size;
        let bytes: Result<Vec<u8>, _> = map.classes.iter().map(|class| u8::try_from(*class)).collect();
        let png = match bytes {
            Ok(bytes) => gray_png_of_bytes(&bytes, [width, height]),
            Err(_) => gray_png(&map.classes, [width, height]),
        };
        self.write(of, what, png)
    }

    fn write(&self, of: &ReadPicture, what: What, png: Result<Vec<u8>, String>) -> Result<()> {
        let png = png.map_err(anyhow::Error::msg).with_context(|| format!("cannot draw {}", of.name))?;
        let path = self.folder.join(name(&of.name, what));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        files::write(&path, &png)
    }
}

/// Refuses options of pictures where the predictions are others.
pub(super) fn refuse_of_pictures(head: &Head, options: &PredictOptions, artifact: &Artifact) -> Result<()> {
    let (folder, name) = (artifact.folder.display(), head.name());
    if options.threshold.is_some() && !matches!(head, Head::Objects { .. } | Head::Instances { .. }) {
        bail!(Unfit(format!("--threshold is for objects in pictures, and {folder} predicts {name}")));
    }
    if options.draw.is_some() && !head.draws() {
        bail!(Unfit(format!("--draw is for objects, segments and depths of pictures, and {folder} predicts {name}")));
    }
    Ok(())
}

/// The place of a folder, or of the nearest one around it that is there.
fn nearest(folder: &Path) -> Option<PathBuf> {
    let whole = std::path::absolute(folder).ok()?;
    whole.ancestors().find_map(|path| path.canonicalize().ok())
}

/// The picture, read once more: a batch of large ones has no room in memory beside what was predicted.
fn opened(of: &ReadPicture) -> Result<Picture> {
    let picture = Picture::open(&of.path)?;
    match [picture.height(), picture.width()] == of.size {
        true => Ok(picture),
        false => bail!("{} is another picture than before", of.path.display()),
    }
}

/// The path of a drawing below its folder: that of the picture, with an ending more, so that pictures of two formats have two. A
/// path of a list that leads elsewhere stays within the folder.
fn name(picture: &str, what: What) -> PathBuf {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("up".into()),
        Component::RootDir => Some("root".into()),
        Component::CurDir | Component::Prefix(_) => None,
    };
    let mut path: PathBuf = Path::new(picture).components().filter_map(part).collect();
    let ending = match what {
        What::Drawn => ".png",
        What::Classes => ".classes.png",
        What::Objects => ".objects.png",
        What::Depths => ".depth.png",
    };
    path.as_mut_os_string().push(ending);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings_stay_within_their_folder() {
        let of = |picture: &str| name(picture, What::Drawn);
        assert_eq!(of("cats/a.jpg"), Path::new("cats/a.jpg.png"));
        assert_eq!(of("../a.jpg"), Path::new("up/a.jpg.png"));
        assert_eq!(of("/a/./b.jpg"), Path::new("root/a/b.jpg.png"));
        assert_eq!(name("a.png", What::Classes), Path::new("a.png.classes.png"));
        assert_eq!(name("a.png", What::Depths), Path::new("a.png.depth.png"));
    }

    #[test]
    fn drawings_are_not_put_among_the_pictures() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        assert!(Drawings::new(&data.join("inner"), &data).is_err());
        assert!(Drawings::new(&folder.path().join("drawn"), &data).is_ok());
    }
}
