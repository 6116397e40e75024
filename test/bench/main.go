// Command bench measures what a user feels of a cluster on this machine: how soon it is there, what it costs while nothing happens, and how
// long a pod takes. It starts one of its own, prints the figures, and takes it down.
//
// Figures move with the machine: compare those of one run. docs/performance.md keeps recorded ones.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/yare-project/yare/internal/pidfile"
	"github.com/yare-project/yare/node/runtime"
)

const port = 26443

func main() {
	yare := flag.String("yare", "bin/yare", "the program to measure")
	image := flag.String("image", "bin/images/busybox.tar", "an image archive with yare.dev/busybox:1 in it; missing: no pods are measured")
	pods := flag.Int("pods", 20, "how many pods to time, one after another")
	idle := flag.Duration("idle", 10*time.Second, "how long to watch an idle cluster")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := run(ctx, *yare, *image, *pods, *idle); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, yare, image string, pods int, idle time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "yare-bench-")
	if err != nil {
		return err
	}
	b := &bench{yare: yare, dir: dir, data: filepath.Join(dir, "data"), config: filepath.Join(dir, "config")}
	defer func() { err = errors.Join(err, b.command(ctx, "down", "--purge"), os.RemoveAll(dir)) }()
	if err := b.start(ctx, "cold"); err != nil { // the runtime unpacks its own images
		return err
	}
	if err := b.stop(ctx); err != nil {
		return err
	}
	if err := b.start(ctx, "warm"); err != nil {
		return err
	}
	if err := b.idle(idle); err != nil {
		return err
	}
	if _, err := os.Stat(image); err != nil {
		fmt.Println("pods are not measured:", err)
		return nil
	}
	if err := b.command(ctx, "image", "import", image); err != nil {
		return err
	}
	return b.pods(ctx, pods)
}

type bench struct {
	yare, dir, data, config string
	process                 pidfile.Process
}

func (b *bench) command(ctx context.Context, args ...string) error {
	args = append(args, "--data-dir", b.data)
	out, err := exec.CommandContext(ctx, b.yare, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("yare %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// start times the way from exec to /readyz and to a Ready node.
func (b *bench) start(ctx context.Context, what string) error {
	began := time.Now()
	cmd := exec.CommandContext(ctx, b.yare, "up", "-d", "--data-dir", b.data, "--write-kubeconfig", b.config, "--https-listen-port", strconv.Itoa(port),
		"--kubelet-port", "21250", "--cluster-cidr", "10.62.0.0/16", "--service-cidr", "10.63.0.0/16", "--node-name", "bench")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	ready, err := untilReady(ctx)
	if err != nil {
		return errors.Join(err, cmd.Wait())
	}
	toReady := ready.Sub(began)
	if err := cmd.Wait(); err != nil { // `up -d` returns when the node is ready
		return fmt.Errorf("%w: %s", err, out.String())
	}
	fmt.Printf("%-44s %8d ms\n", what+" start to /readyz", toReady.Milliseconds())
	fmt.Printf("%-44s %8d ms\n", what+" start to node Ready", time.Since(began).Milliseconds())
	fmt.Print(out.String())
	process, alive, err := pidfile.Read(filepath.Join(b.data, "yare.pid"))
	if err != nil || !alive {
		return fmt.Errorf("no process: %w", err)
	}
	b.process = process
	return nil
}

func untilReady(ctx context.Context) (time.Time, error) {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // own loopback server, before its CA is known
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case <-tick.C:
		}
		answer, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/readyz", port))
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return time.Now(), nil
		}
	}
}

func (b *bench) stop(ctx context.Context) error {
	process, err := os.FindProcess(b.process.PID)
	if err != nil {
		return err
	}
	if err := process.Signal(os.Interrupt); err != nil {
		return err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for b.process.Alive() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// idle reads memory and processor time of a cluster with nothing to do.
func (b *bench) idle(span time.Duration) error {
	time.Sleep(span / 2) // let the start's garbage go
	before, err := cpu(b.process.PID)
	if err != nil {
		return err
	}
	time.Sleep(span)
	after, err := cpu(b.process.PID)
	if err != nil {
		return err
	}
	fmt.Printf("%-44s %8.1f MiB\n", "idle: Yare's own process, resident", memory(b.process.PID))
	fmt.Printf("%-44s %8.2f %% of a core\n", "idle: Yare's own process, processor", 100*(after-before).Seconds()/span.Seconds())
	for _, pid := range children("containerd", runtime.Config{Dir: filepath.Join(b.data, "runtime")}.ID()) {
		fmt.Printf("%-44s %8.1f MiB\n", "idle: containerd, resident", memory(pid))
	}
	return nil
}

func memory(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kib, _ := strconv.ParseFloat(fields[1], 64)
			return kib / 1024
		}
	}
	return 0
}

// cpu is a process's user and system time; the kernel counts in hundredths of a second.
func cpu(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text)[strings.LastIndex(string(text), ")")+1:])
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, nil
}

// children finds processes by program name and a word in their arguments.
func children(name, word string) (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		program, args, _ := strings.Cut(string(text), "\x00")
		if filepath.Base(program) == name && strings.Contains(args, word) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// pods times pods one after another, each from its creation to what a watch shows.
func (b *bench) pods(ctx context.Context, n int) error {
	config, err := clientcmd.BuildConfigFromFlags("", b.config)
	if err != nil {
		return err
	}
	config.QPS = -1
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	times := map[string][]time.Duration{}
	before, _ := cpu(b.process.PID)
	for i := range n {
		if err := onePod(ctx, api, fmt.Sprintf("bench-%d", i), times); err != nil {
			return err
		}
	}
	after, _ := cpu(b.process.PID)
	for _, hop := range []string{"created", "bound", "Ready"} {
		slices.Sort(times[hop])
		fmt.Printf("%-44s %8.1f ms median, %.1f ms at most\n", "one pod, until "+hop, ms(times[hop][n/2]), ms(times[hop][n-1]))
	}
	fmt.Printf("%-44s %8.1f ms\n", "one pod, Yare's own processor time", ms(after-before)/float64(n))
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func onePod(ctx context.Context, api kubernetes.Interface, name string, times map[string][]time.Duration) error {
	pods := api.CoreV1().Pods("default")
	events, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return err
	}
	defer events.Stop()
	var grace int64
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{
		Name: "main", Image: "yare.dev/busybox:1", ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "3600"},
	}}}}
	began := time.Now()
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	times["created"] = append(times["created"], time.Since(began))
	bound := false
	for e := range events.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok || e.Type == watch.Deleted {
			return fmt.Errorf("pod %s: unexpected %s", name, e.Type)
		}
		if !bound && pod.Spec.NodeName != "" {
			bound = true
			times["bound"] = append(times["bound"], time.Since(began))
		}
		if ready(pod) {
			times["Ready"] = append(times["Ready"], time.Since(began))
			return pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
		}
	}
	return fmt.Errorf("the watch of pod %s ended before it was Ready", name)
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
