package cri

import (
	"context"
	"fmt"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var (
	_ internalapi.RuntimeService      = (*Conn)(nil)
	_ internalapi.ImageManagerService = (*Conn)(nil)
)

// ListImages lists the images that are present.
func (c *Conn) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	r, err := c.images.ListImages(ctx, &runtimeapi.ListImagesRequest{Filter: filter})
	return r.GetImages(), err
}

// ImageStatus answers an image, whose Image is nil if it is not present.
func (c *Conn) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	return c.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image, Verbose: verbose})
}

// PullImage pulls an image and returns its reference. It lasts as long as ctx allows.
func (c *Conn) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	r, err := c.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: sandbox})
	if err != nil {
		return "", err
	}
	if r.ImageRef == "" {
		return "", fmt.Errorf("the runtime pulled image %q without a reference", image.GetImage())
	}
	return r.ImageRef, nil
}

// RemoveImage removes an image.
func (c *Conn) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	_, err := c.images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: image})
	return err
}

// ImageFsInfo answers where images are kept and what they use.
func (c *Conn) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	return c.images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
}
