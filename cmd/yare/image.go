package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/yare-project/yare/node/image"
	"github.com/yare-project/yare/server"
)

func imageCommand() *cobra.Command {
	f := &flags{}
	root := &cobra.Command{Use: "image", Short: "Images from local files"}
	f.addFolder(root.PersistentFlags())
	root.PersistentFlags().StringVar(&f.config.RuntimeEndpoint, "container-runtime-endpoint", "", "the containerd to use instead of the cluster's own")
	root.AddCommand(f.imageImport(), f.imageList(), imageBuild())
	return root
}

func (f *flags) imageImport() *cobra.Command {
	return &cobra.Command{
		Use: "import FILE...", Short: "Import image archives (docker save or OCI layout, plain or compressed; - reads standard input)", Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			store, done, err := server.Images(command.Context(), f.config.DataDir, f.config.RuntimeEndpoint)
			if err != nil {
				return err
			}
			defer done(command.Context())
			for _, path := range args {
				images, err := importFile(command, store, path)
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				for _, i := range images {
					fmt.Fprintf(command.OutOrStdout(), "%s  %s\n", i.Name, i.Digest)
				}
			}
			return nil
		},
	}
}

func importFile(command *cobra.Command, store *image.Store, path string) ([]image.Image, error) {
	var from io.Reader = command.InOrStdin()
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	return store.Import(command.Context(), from, image.ImportOptions{Pin: true})
}

func (f *flags) imageList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the images that pods can use without a pull", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			store, done, err := server.Images(command.Context(), f.config.DataDir, f.config.RuntimeEndpoint)
			if err != nil {
				return err
			}
			defer done(command.Context())
			images, err := store.List(command.Context())
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(command.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tDIGEST\tCREATED")
			for _, i := range images {
				fmt.Fprintf(w, "%s\t%s\t%s\n", i.Name, i.Digest, i.Created.UTC().Format("2006-01-02 15:04:05"))
			}
			return w.Flush()
		},
	}
}

func imageBuild() *cobra.Command {
	var spec image.Spec
	var output, tag string
	command := &cobra.Command{
		Use: "build FOLDER", Short: "Make an image archive of one layer from a folder: a static program, or a root file system", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			entries, err := os.ReadDir(args[0])
			if err != nil {
				return err
			}
			spec.Files = map[string]string{}
			for _, e := range entries {
				spec.Files["/"+e.Name()] = filepath.Join(args[0], e.Name())
			}
			built, err := image.Build(spec)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
				return err
			}
			return image.SaveFile(output, tag, built)
		},
	}
	set := command.Flags()
	set.StringVarP(&output, "output", "o", "image.tar", "the archive to write")
	set.StringVarP(&tag, "tag", "t", "", "the image's name")
	set.StringSliceVar(&spec.Entrypoint, "entrypoint", nil, "program and first arguments, separated by commas")
	set.StringSliceVar(&spec.Cmd, "cmd", nil, "default arguments, separated by commas")
	set.StringArrayVar(&spec.Env, "env", nil, "environment variable, NAME=value")
	set.StringVar(&spec.User, "user", "", "user to run as")
	set.StringVar(&spec.WorkingDir, "workdir", "", "folder to run in")
	_ = command.MarkFlagRequired("tag")
	return command
}
