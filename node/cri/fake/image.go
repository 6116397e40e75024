package fake

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sort"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pull records one PullImage call.
type Pull struct {
	Image string
	Auth  *runtimeapi.AuthConfig
}

// PullFunc decides whether a pull succeeds.
type PullFunc func(image string, auth *runtimeapi.AuthConfig) error

// Missing makes an image absent until it is pulled.
func (r *Runtime) Missing(image string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing[image] = true
}

// AddImage makes an image present with the given facts, such as its user; its id is filled in if empty.
func (r *Runtime) AddImage(image *runtimeapi.Image) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tag := range image.RepoTags {
		if image.Id == "" {
			image.Id = digest(tag)
		}
		r.images[tag] = image
		delete(r.missing, tag)
	}
}

// OnPull sets what PullImage answers; without it every pull succeeds.
func (r *Runtime) OnPull(f PullFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pull = f
}

// Pulls lists the PullImage calls so far.
func (r *Runtime) Pulls() []Pull {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Pull(nil), r.pulls...)
}

func digest(s string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s))) }

// image answers a present image, making it up on first sight. r.mu is held.
func (r *Runtime) image(name string) *runtimeapi.Image {
	if r.missing[name] {
		return nil
	}
	if img := r.images[name]; img != nil {
		return img
	}
	for _, img := range r.images {
		if img.Id == name {
			return img
		}
	}
	img := &runtimeapi.Image{Id: digest(name), RepoTags: []string{name}, RepoDigests: []string{name + "@" + digest(name)}, Size: 1 << 20,
		Uid: &runtimeapi.Int64Value{}, Spec: &runtimeapi.ImageSpec{Image: name}}
	r.images[name] = img
	return img
}

// ImageStatus answers an image, whose Image is nil if it is missing.
func (r *Runtime) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail("ImageStatus"); err != nil {
		return nil, err
	}
	return &runtimeapi.ImageStatusResponse{Image: r.image(spec.GetImage())}, nil
}

// PullImage makes an image present, if the function set by OnPull agrees.
func (r *Runtime) PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	f, err := r.pull, r.fail("PullImage")
	r.pulls = append(r.pulls, Pull{Image: spec.GetImage(), Auth: auth})
	r.mu.Unlock()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && f != nil {
		err = f(spec.GetImage(), auth)
	}
	if err != nil {
		return "", status.Error(codes.Unknown, err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.missing, spec.GetImage())
	return r.image(spec.GetImage()).Id, nil
}

// ListImages lists the images that were asked for so far and are not missing.
func (r *Runtime) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]*runtimeapi.Image{}
	for name, img := range r.images {
		if !r.missing[name] {
			seen[img.Id] = img
		}
	}
	out := make([]*runtimeapi.Image, 0, len(seen))
	for _, img := range seen {
		out = append(out, img)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Id < out[j].Id })
	return out, nil
}

// RemoveImage makes an image missing.
func (r *Runtime) RemoveImage(_ context.Context, spec *runtimeapi.ImageSpec) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, img := range r.images {
		if name == spec.GetImage() || img.Id == spec.GetImage() {
			r.missing[name] = true
		}
	}
	return nil
}

// ImageFsInfo answers a file system without use.
func (r *Runtime) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	fs := []*runtimeapi.FilesystemUsage{{Timestamp: r.cfg.Clock.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{}}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: fs, ContainerFilesystems: fs}, nil
}
