package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	clienthttp "github.com/yare-project/yare/client/http"
	"github.com/yare-project/yare/scheduler"
	"github.com/yare-project/yare/simulate"
)

// mostFit is how many more pods --fit tries.
const mostFit = 100_000

// simulateFlags are those of yare simulate.
type simulateFlags struct {
	cluster                clusterFlags
	files                  []string
	snapshot, save, config string
	output                 string
	without                []string
	fit                    bool
	nodeLike, node         string
	nodeLabels             string
	nodeTaints             []string
	seed                   uint64
}

func simulateCommand() *cobra.Command {
	f := &simulateFlags{}
	command := &cobra.Command{
		Use:   "simulate [-f FILE]",
		Short: "Say where pods would go, whom they would evict and why some do not fit",
		Long: "Runs the scheduler on a copy of the cluster and says where the pods of the given objects would go, which pods they would evict and, of those that fit nowhere,\n" +
			"why, and the smallest change that would help. Pods, and whatever has a template for pods, are placed; Nodes, claims, PriorityClasses and the like are added to the copy.\n" +
			"Nothing is changed in the cluster: it is only read, or, with --snapshot, not even asked. The same input gives the same answer.",
		Example: "  yare simulate -f web.yaml\n" +
			"  yare simulate -f web.yaml --fit\n" +
			"  yare simulate -f web.yaml --node-like worker-1\n" +
			"  yare simulate -f web.yaml --node cpu=8,memory=32Gi,pods=110\n" +
			"  yare simulate --without-node worker-1\n" +
			"  yare simulate --save cluster.json.gz && yare simulate --snapshot cluster.json.gz -f web.yaml",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return f.run(command) },
	}
	set := command.Flags()
	f.cluster.add(set)
	set.StringSliceVarP(&f.files, "filename", "f", nil, "files or folders with the objects to try, or - for standard input")
	set.StringVar(&f.snapshot, "snapshot", "", "read the cluster from this file, which --save wrote, or kubectl get -o json or yaml")
	set.StringVar(&f.save, "save", "", "write what was read of the cluster to this file (compressed if it ends in .gz)")
	set.StringVar(&f.config, "config", "", "a KubeSchedulerConfiguration file (default: one profile, default-scheduler)")
	set.StringSliceVar(&f.without, "without-node", nil, "lose these nodes first: their pods look for another place")
	set.BoolVar(&f.fit, "fit", false, "say how many more such pods fit, without evictions")
	set.StringVar(&f.nodeLike, "node-like", "", "say how many more nodes like this one are needed until all pods have a place")
	set.StringVar(&f.node, "node", "", "as --node-like, for nodes that can give this to pods: cpu=8,memory=32Gi,pods=110")
	set.StringVar(&f.nodeLabels, "node-labels", "", "labels of the nodes of --node-like or --node: a=b,c=d")
	set.StringSliceVar(&f.nodeTaints, "node-taints", nil, "taints of the nodes of --node-like or --node: KEY=VALUE:EFFECT")
	set.Uint64Var(&f.seed, "seed", 1, "decides among nodes that are equally good")
	set.StringVarP(&f.output, "output", "o", "plain", "plain, json or yaml")
	command.MarkFlagsMutuallyExclusive("node-like", "node")
	return command
}

func (f *simulateFlags) run(command *cobra.Command) error {
	if !slices.Contains([]string{"plain", "json", "yaml"}, f.output) {
		return fmt.Errorf("--output %q: use plain, json or yaml", f.output)
	}
	if len(f.files) == 0 && len(f.without) == 0 && f.save == "" {
		return errors.New("nothing to simulate: say what with -f FILE or --without-node NAME, or write a snapshot with --save FILE")
	}
	options, err := f.options()
	if err != nil {
		return err
	}
	cluster, namespace, err := f.read(command.Context())
	if err != nil {
		return err
	}
	if f.save != "" {
		if err := saveSnapshot(f.save, cluster); err != nil {
			return fmt.Errorf("--save: %w", err)
		}
	}
	if len(f.files) == 0 && len(f.without) == 0 {
		return nil
	}
	if options.Manifest, err = manifest(command.InOrStdin(), f.files, namespace); err != nil {
		return err
	}
	report, err := simulate.Run(command.Context(), cluster, options)
	if err != nil {
		return err
	}
	return f.print(command.OutOrStdout(), report)
}

// options are what the flags say, but for the manifest.
func (f *simulateFlags) options() (o simulate.Options, err error) {
	o = simulate.Options{Without: f.without, Seed: f.seed}
	if f.fit {
		o.Fit = mostFit
	}
	if o.Profiles, err = scheduler.LoadConfig(f.config); err != nil {
		return o, err
	}
	switch {
	case f.nodeLike != "":
		o.Like = &simulate.Shape{Node: f.nodeLike}
	case f.node != "":
		if o.Like, err = simulate.ParseShape(f.node); err != nil {
			return o, fmt.Errorf("--node: %w", err)
		}
	case f.nodeLabels != "" || len(f.nodeTaints) > 0:
		return o, errors.New("--node-labels and --node-taints are of the nodes of --node-like or --node; give one of them too")
	}
	if o.Like == nil {
		return o, nil
	}
	if o.Like.Labels, err = labels.ConvertSelectorToLabelsMap(f.nodeLabels); err != nil {
		return o, fmt.Errorf("--node-labels: %w", err)
	}
	for _, text := range f.nodeTaints {
		taint, err := parseTaint(text)
		if err != nil {
			return o, fmt.Errorf("--node-taints: %w", err)
		}
		o.Like.Taints = append(o.Like.Taints, taint)
	}
	return o, nil
}

// parseTaint reads KEY=VALUE:EFFECT or KEY:EFFECT.
func parseTaint(text string) (corev1.Taint, error) {
	rest, effect, ok := strings.Cut(text, ":")
	key, value, _ := strings.Cut(rest, "=")
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if !ok || key == "" || !slices.Contains(effects, corev1.TaintEffect(effect)) {
		return corev1.Taint{}, fmt.Errorf("%q: write KEY=VALUE:EFFECT, where EFFECT is one of %v", text, effects)
	}
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}

// read gets the cluster, and the namespace of objects that name none.
func (f *simulateFlags) read(ctx context.Context) (*simulate.Cluster, string, error) {
	if f.snapshot != "" {
		cluster, err := loadSnapshot(f.snapshot)
		if err != nil {
			return nil, "", fmt.Errorf("--snapshot: %s: %w", f.snapshot, err)
		}
		namespace := f.cluster.namespace
		if namespace == "" {
			namespace = "default"
		}
		return cluster, namespace, nil
	}
	config, namespace, err := f.cluster.client()
	if err != nil {
		return nil, "", err
	}
	api, err := clienthttp.New(config)
	if err != nil {
		return nil, "", err
	}
	cluster, err := simulate.Read(ctx, api, time.Now())
	return cluster, namespace, err
}

func loadSnapshot(path string) (*simulate.Cluster, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var r io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(file)
		if err != nil {
			return nil, err
		}
		r = z
	}
	return simulate.Load(r)
}

// saveSnapshot writes a file that only its owner may read: it says a lot about a cluster.
func saveSnapshot(path string, cluster *simulate.Cluster) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if !strings.HasSuffix(path, ".gz") {
		return cluster.Save(file)
	}
	z := gzip.NewWriter(file)
	if err := cluster.Save(z); err != nil {
		return err
	}
	return z.Close()
}

// manifest reads files, the .yaml, .yml and .json files of folders in order of name, and for - standard input.
func manifest(stdin io.Reader, paths []string, namespace string) (simulate.Manifest, error) {
	var all simulate.Manifest
	for _, path := range paths {
		files, err := manifestFiles(path)
		if err != nil {
			return all, err
		}
		for _, file := range files {
			one, err := manifestFile(stdin, file, namespace)
			if err != nil {
				return all, fmt.Errorf("%s: %w", file, err)
			}
			all.Add(one)
		}
	}
	return all, nil
}

func manifestFiles(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() {
			out = append(out, filepath.Join(path, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no .yaml, .yml or .json files in this folder", path)
	}
	return out, nil
}

func manifestFile(stdin io.Reader, path, namespace string) (simulate.Manifest, error) {
	if path == "-" {
		return simulate.ParseManifest(stdin, namespace)
	}
	file, err := os.Open(path)
	if err != nil {
		return simulate.Manifest{}, err
	}
	defer file.Close()
	return simulate.ParseManifest(file, namespace)
}

func (f *simulateFlags) print(out io.Writer, report *simulate.Report) error {
	switch f.output {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	case "yaml":
		body, err := yaml.Marshal(report)
		if err != nil {
			return err
		}
		_, err = out.Write(body)
		return err
	}
	return simulate.Print(out, report)
}
