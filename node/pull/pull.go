// Package pull makes the images of containers present, by their pull policy, with the credentials of their pods, and with a growing wait after
// failures.
//
// One image is pulled once at a time per set of credentials, however many containers wait for it, and a bounded number of images at once. What
// it refuses, it refuses with the reason words that users know (ErrImagePull, ImagePullBackOff, ErrImageNeverPull, InvalidImageName). Safe for
// concurrent use. It never removes an image.
package pull

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/node/launch"
)

// Config is what a Puller needs.
type Config struct {
	Images internalapi.ImageManagerService
	// Secret answers a pull secret.
	Secret func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Event records what happens to a container's image.
	Event func(pod *corev1.Pod, container, kind, reason, message string)
	Clock clock.Clock
	// Parallel is how many images may be pulled at once; zero means 4.
	Parallel int
}

// Error is a refusal with its reason.
type Error struct {
	Reason, Message string
	// Retry is when trying again makes sense.
	Retry time.Time
}

func (e *Error) Error() string { return e.Message }

// The reasons of an Error.
const (
	ErrImagePull      = "ErrImagePull"
	ImagePullBackOff  = "ImagePullBackOff"
	ErrImageNeverPull = "ErrImageNeverPull"
	InvalidImageName  = "InvalidImageName"
	ImageInspectError = "ImageInspectError"
)

const (
	firstDelay = 10 * time.Second
	lastDelay  = 300 * time.Second
)

// Puller pulls images.
type Puller struct {
	ctx   context.Context
	cfg   Config
	slots chan struct{}

	mu      sync.Mutex
	flights map[string]*flight
	failed  map[failKey]*failure
}

type flight struct {
	done  chan struct{}
	ref   string
	err   error
	took  time.Duration
	image *runtimeapi.Image
}

type failKey struct {
	uid   types.UID
	image string
}

type failure struct {
	delay   time.Duration
	until   time.Time
	message string
}

// New makes a Puller whose pulls end with ctx.
func New(ctx context.Context, cfg Config) *Puller {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Parallel == 0 {
		cfg.Parallel = 4
	}
	if cfg.Event == nil {
		cfg.Event = func(*corev1.Pod, string, string, string, string) {}
	}
	return &Puller{ctx: ctx, cfg: cfg, slots: make(chan struct{}, cfg.Parallel), flights: map[string]*flight{}, failed: map[failKey]*failure{}}
}

// Ensure makes an image present for a pod's volume and answers its reference.
func (p *Puller) Ensure(ctx context.Context, pod *corev1.Pod, image string, policy corev1.PullPolicy) (string, error) {
	img, err := p.Image(ctx, pod, "", image, policy, nil)
	return img.Ref, err
}

// Image makes an image present for a container, and answers what the runtime knows of it. A refusal is an *Error.
func (p *Puller) Image(ctx context.Context, pod *corev1.Pod, container, image string, policy corev1.PullPolicy, sandbox *runtimeapi.PodSandboxConfig) (launch.Image, error) {
	full, err := WithTag(image)
	if err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: %v", image, err)
		p.cfg.Event(pod, container, corev1.EventTypeWarning, "InspectFailed", message)
		return launch.Image{}, &Error{Reason: InvalidImageName, Message: message, Retry: p.cfg.Clock.Now().Add(lastDelay)}
	}
	spec := &runtimeapi.ImageSpec{Image: full, UserSpecifiedImage: image, Annotations: pod.Annotations}
	if policy != corev1.PullAlways {
		have, err := p.present(ctx, spec)
		if err != nil {
			message := fmt.Sprintf("Failed to inspect image %q: %v", image, plain(err))
			p.cfg.Event(pod, container, corev1.EventTypeWarning, "InspectFailed", message)
			return launch.Image{}, &Error{Reason: ImageInspectError, Message: message, Retry: p.cfg.Clock.Now().Add(firstDelay)}
		}
		if have != nil {
			p.cfg.Event(pod, container, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine", image))
			return facts(have.Id, have), nil
		}
	}
	if policy == corev1.PullNever {
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", image)
		p.cfg.Event(pod, container, corev1.EventTypeWarning, "ErrImageNeverPull", message)
		return launch.Image{}, &Error{Reason: ErrImageNeverPull, Message: message, Retry: p.cfg.Clock.Now().Add(firstDelay)}
	}
	return p.pull(ctx, pod, container, image, spec, sandbox)
}

func (p *Puller) present(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	r, err := p.cfg.Images.ImageStatus(ctx, spec, false)
	if err != nil {
		return nil, err
	}
	return r.GetImage(), nil
}

func (p *Puller) pull(ctx context.Context, pod *corev1.Pod, container, image string, spec *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig) (launch.Image, error) {
	key := failKey{pod.UID, image}
	if err := p.waiting(key); err != nil {
		return launch.Image{}, err
	}
	auths, err := p.credentials(ctx, pod, container, spec.Image)
	if err != nil {
		return launch.Image{}, p.fail(key, fmt.Sprintf("credentials for image %q: %v", image, err))
	}
	p.cfg.Event(pod, container, corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", image))
	start := p.cfg.Clock.Now()
	f := p.shared(ctx, spec, auths, sandbox)
	if f.err != nil {
		if ctx.Err() != nil {
			return launch.Image{}, ctx.Err()
		}
		message := plain(f.err)
		p.cfg.Event(pod, container, corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %s", image, message))
		return launch.Image{}, p.fail(key, message)
	}
	p.mu.Lock()
	delete(p.failed, key)
	p.mu.Unlock()
	whole := p.cfg.Clock.Now().Sub(start)
	p.cfg.Event(pod, container, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		image, f.took.Truncate(time.Millisecond), whole.Truncate(time.Millisecond), f.image.GetSize()))
	return facts(f.ref, f.image), nil
}

// waiting answers an ImagePullBackOff if it is too early to try again.
func (p *Puller) waiting(key failKey) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.failed[key]
	if f == nil || !p.cfg.Clock.Now().Before(f.until) {
		return nil
	}
	return &Error{Reason: ImagePullBackOff, Message: fmt.Sprintf("Back-off pulling image %q: %s: %s", key.image, ErrImagePull, f.message), Retry: f.until}
}

func (p *Puller) fail(key failKey, message string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.failed[key]
	if f == nil {
		f = &failure{}
		p.failed[key] = f
	}
	f.delay = min(max(2*f.delay, firstDelay), lastDelay)
	f.until, f.message = p.cfg.Clock.Now().Add(f.delay), message
	return &Error{Reason: ErrImagePull, Message: message, Retry: f.until}
}

// Forget drops what is remembered of a pod.
func (p *Puller) Forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.failed {
		if k.uid == uid {
			delete(p.failed, k)
		}
	}
}

// shared pulls an image, or waits for the one who pulls it with the same credentials already. A pull that others wait for goes on when
// the first who asked no longer needs it.
func (p *Puller) shared(ctx context.Context, spec *runtimeapi.ImageSpec, auths []*runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) *flight {
	key := spec.Image
	for _, a := range auths {
		key += "\x00" + a.GetUsername() + "\x00" + a.GetPassword() + "\x00" + a.GetIdentityToken() + "\x00" + a.GetRegistryToken()
	}
	p.mu.Lock()
	f := p.flights[key]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		p.flights[key] = f
		go p.fly(p.ctx, key, f, spec, auths, sandbox)
	}
	p.mu.Unlock()
	select {
	case <-f.done:
		return f
	case <-ctx.Done():
		return &flight{err: ctx.Err()}
	}
}

// pullLimit bounds one pull; a larger image on a slower line continues from its layers at the next try.
const pullLimit = time.Hour

func (p *Puller) fly(ctx context.Context, key string, f *flight, spec *runtimeapi.ImageSpec, auths []*runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) {
	ctx, cancel := context.WithTimeout(ctx, pullLimit)
	defer cancel()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
	}
	start := p.cfg.Clock.Now()
	var failures []error
	for _, auth := range auths {
		ref, err := p.cfg.Images.PullImage(ctx, spec, auth, sandbox)
		if err == nil {
			f.ref, failures = ref, nil
			break
		}
		failures = append(failures, err)
	}
	if len(failures) > 0 {
		f.err = failures[len(failures)-1]
	} else if f.image, f.err = p.present(ctx, spec); f.err == nil && f.image == nil {
		f.err = errors.New("the runtime pulled the image, and then did not have it")
	}
	f.took = p.cfg.Clock.Now().Sub(start)
	p.mu.Lock()
	delete(p.flights, key)
	p.mu.Unlock()
	close(f.done)
}

func facts(ref string, img *runtimeapi.Image) launch.Image {
	out := launch.Image{Ref: ref}
	if out.Ref == "" {
		out.Ref = img.GetId()
	}
	switch {
	case img.GetUid() != nil:
		out.UID = &img.Uid.Value
	case img.GetUsername() != "":
		// containerd gives "user:group" as the image has it
		out.User, _, _ = strings.Cut(img.Username, ":")
	}
	return out
}

func plain(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

// WithTag adds the tag "latest" to an image name that has neither tag nor digest.
func WithTag(image string) (string, error) {
	if _, err := name.ParseReference(image, name.WeakValidation); err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	if strings.Contains(image, "@") {
		return image, nil
	}
	if last := image[strings.LastIndexByte(image, '/')+1:]; strings.Contains(last, ":") {
		return image, nil
	}
	return image + ":latest", nil
}
