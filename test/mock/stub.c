/* stub - a library to link with that the loader will not find again. */
int stub_unused(void);

int stub_unused(void)
{
    return 0;
}
