package image

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sort"
	"strings"
	"time"

	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/google/go-containerregistry/pkg/name"
)

// Namespace is the containerd namespace that the CRI plug-in uses.
const Namespace = "k8s.io"

// pinnedLabel keeps an image from being removed by the CRI client's garbage
// collection; its name and value are the CRI plug-in's.
const (
	pinnedLabel = "io.cri-containerd.pinned"
	pinned      = "pinned"
)

// Config says how to reach a containerd.
type Config struct {
	// Conn is a connection to containerd's own socket, not to another CRI
	// runtime: importing is no part of CRI.
	Conn grpc.ClientConnInterface
	// Snapshotter is where layers are unpacked: "overlayfs" or "native".
	Snapshotter string
}

// Store is the images of one containerd.
type Store struct {
	conn        grpc.ClientConnInterface
	images      imagesapi.ImagesClient
	snapshotter string
}

// NewStore returns the store behind a containerd connection.
func NewStore(c Config) *Store {
	return &Store{conn: c.Conn, images: imagesapi.NewImagesClient(c.Conn), snapshotter: c.Snapshotter}
}

// Image is one name in the store.
type Image struct {
	// Name is a full reference, such as docker.io/library/busybox:1.36.
	Name string
	// Digest of the manifest or index that the name points at.
	Digest string
	// Created is when the name was first stored.
	Created time.Time
}

// ImportOptions are optional.
type ImportOptions struct {
	// Name is given to the archive's image when the archive names none.
	Name string
	// Pin keeps the images from garbage collection.
	Pin bool
}

// Import reads an archive to its end and returns the images it named, sorted
// by name. An image whose name exists already is replaced. An archive that names
// no image is refused, unless opts.Name says what to call it.
func (s *Store) Import(ctx context.Context, r io.Reader, opts ImportOptions) ([]Image, error) {
	archive, err := inflate(r)
	if err != nil {
		return nil, fmt.Errorf("import image archive: %w", err)
	}
	defer archive.Close()
	saved, err := s.transfer(withNamespace(ctx), archive, opts)
	if err != nil {
		return nil, fmt.Errorf("import image archive: %w", err)
	}
	if len(saved) == 0 {
		return nil, fmt.Errorf("import image archive: it names no image: save it with a name (docker save NAME:TAG), or say which name to give it")
	}
	var out []Image
	for _, n := range saved {
		img, err := s.normalize(withNamespace(ctx), n)
		if err != nil {
			return nil, fmt.Errorf("import image archive: name %q: %w", n, err)
		}
		out = append(out, img)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// normalize makes sure that an image can be found under its full name, which is
// the only one that the CRI plug-in asks for: an OCI archive may say "shop:v1".
func (s *Store) normalize(ctx context.Context, stored string) (Image, error) {
	full, err := fullName(stored)
	if err != nil {
		return Image{}, err
	}
	got, err := s.images.Get(ctx, &imagesapi.GetImageRequest{Name: stored})
	if err != nil {
		return Image{}, err
	}
	img := got.Image
	if full == stored {
		return fromAPI(img), nil
	}
	img.Name = full
	if _, err := s.images.Create(ctx, &imagesapi.CreateImageRequest{Image: img}); status.Code(err) == codes.AlreadyExists {
		_, err = s.images.Update(ctx, &imagesapi.UpdateImageRequest{Image: img, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"target", "labels"}}})
		if err != nil {
			return Image{}, err
		}
	} else if err != nil {
		return Image{}, err
	}
	_, err = s.images.Delete(ctx, &imagesapi.DeleteImageRequest{Name: stored})
	if err != nil && status.Code(err) != codes.NotFound {
		return Image{}, err
	}
	return fromAPI(img), nil
}

// List returns every named image, sorted by name; the digests that the CRI
// plug-in keeps as names of their own are left out.
func (s *Store) List(ctx context.Context) ([]Image, error) {
	resp, err := s.images.List(withNamespace(ctx), &imagesapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var out []Image
	for _, img := range resp.Images {
		if strings.Contains(img.Name, "sha256:") {
			continue
		}
		out = append(out, fromAPI(img))
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// Has reports whether a name is stored.
func (s *Store) Has(ctx context.Context, ref string) (bool, error) {
	full, err := fullName(ref)
	if err != nil {
		return false, err
	}
	_, err = s.images.Get(withNamespace(ctx), &imagesapi.GetImageRequest{Name: full})
	switch status.Code(err) {
	case codes.OK:
		return true, nil
	case codes.NotFound:
		return false, nil
	}
	return false, fmt.Errorf("look up image %s: %w", full, err)
}

// Remove forgets a name, and its layers once nothing else uses them. A name that
// is not there is no error.
func (s *Store) Remove(ctx context.Context, ref string) error {
	full, err := fullName(ref)
	if err != nil {
		return err
	}
	_, err = s.images.Delete(withNamespace(ctx), &imagesapi.DeleteImageRequest{Name: full})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("remove image %s: %w", full, err)
	}
	return nil
}

func fromAPI(img *imagesapi.Image) Image {
	out := Image{Name: img.Name, Digest: img.GetTarget().GetDigest()}
	if img.CreatedAt != nil {
		out.Created = img.CreatedAt.AsTime()
	}
	return out
}

// fullName is a reference as the CRI plug-in stores it: with registry,
// repository and tag or digest ("docker.io/library/" before a bare name).
func fullName(ref string) (string, error) {
	r, err := name.ParseReference(ref, name.WithDefaultRegistry("docker.io"))
	if err != nil {
		return "", fmt.Errorf("%q is no image reference: %w", ref, err)
	}
	n := r.Name()
	const legacy = "index.docker.io/"
	if len(n) > len(legacy) && n[:len(legacy)] == legacy {
		n = "docker.io/" + n[len(legacy):]
	}
	return dockerLibrary(n), nil
}

// dockerLibrary inserts the "library" folder of Docker Hub's official images.
func dockerLibrary(n string) string {
	const hub = "docker.io/"
	if len(n) <= len(hub) || n[:len(hub)] != hub {
		return n
	}
	for _, c := range n[len(hub):] {
		if c == '/' {
			return n
		}
	}
	return hub + "library/" + n[len(hub):]
}

func withNamespace(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", Namespace)
}

// platform is the one that this node runs.
func platform() (os, arch string) { return "linux", runtime.GOARCH }
